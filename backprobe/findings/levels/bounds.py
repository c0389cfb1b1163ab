"""The alarm bounds that plots draw as lines."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ... import thresholds
from .alarms import (
    GROWTH_BOUNDS,
    OF_PARAMETERS,
)

#: Quantities that have the same bound for all layers.
_SAME = {
    "update_ratio": thresholds.UPDATE_RATIO_BOUND,
    "headroom": thresholds.ACTIVATION_MIN_HEADROOM,
    "adam_ratio": thresholds.ADAM_RATIO_BOUND,
    "dead": thresholds.DEAD_SHARE,
    "saturated": thresholds.SATURATED_SHARE,
}


def bound(quantity: str, first: Sequence[float]) -> float | None:
    """Return the bound of `quantity` for a layer: an alarm is raised above it, or below it if small values are bad.

    Returns ``None`` if the quantity has no fixed bound, or none yet.

    :param first: the layer's first ``LEVELS_EARLY_LOOKS`` measurements from step ``LEVELS_FIRST_STEP`` on.
    """
    if quantity in _SAME:
        return _SAME[quantity]
    if quantity not in GROWTH_BOUNDS or len(first) < thresholds.LEVELS_EARLY_LOOKS:
        return None
    level, times, _ = GROWTH_BOUNDS[quantity]
    return float(max(level, times * median(first[: thresholds.LEVELS_EARLY_LOOKS])))


def of_matrices(quantity: str) -> bool:
    """Return whether the bound applies to matrices only."""
    return quantity in OF_PARAMETERS


def of_the_middle(quantity: str) -> bool:
    """Return whether the bound applies to the median layer and not to each layer."""
    return quantity == "adam_ratio"
