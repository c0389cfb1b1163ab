"""The alarm bounds that plots draw as lines."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from .alarms import (
    DEAD,
    EARLY_MEASUREMENTS,
    FIRST_STEP,
    GROWTH_BOUNDS,
    HEADROOM,
    MAX_ADAM_RATIO,
    MAX_UPDATE_RATIO,
    OF_PARAMETERS,
    SATURATED,
)

__all__ = ["EARLY_MEASUREMENTS", "FIRST_STEP", "bound", "of_matrices", "of_the_middle"]

#: Quantities that have the same bound for all layers.
_SAME = {
    "update_ratio": MAX_UPDATE_RATIO,
    "headroom": HEADROOM,
    "adam_ratio": MAX_ADAM_RATIO,
    "dead": DEAD[0],
    "saturated": SATURATED[0],
}


def bound(quantity: str, first: Sequence[float]) -> float | None:
    """Return the bound of `quantity` for a layer: an alarm is raised above it, or below it if small values are bad.

    Returns ``None`` if the quantity has no fixed bound, or none yet.

    :param first: the layer's first ``EARLY_MEASUREMENTS`` measurements from step ``FIRST_STEP`` on.
    """
    if quantity in _SAME:
        return _SAME[quantity]
    if quantity not in GROWTH_BOUNDS or len(first) < EARLY_MEASUREMENTS:
        return None
    level, times, _ = GROWTH_BOUNDS[quantity]
    return float(max(level, times * median(first[:EARLY_MEASUREMENTS])))


def of_matrices(quantity: str) -> bool:
    """Return whether the bound applies to matrices only."""
    return quantity in OF_PARAMETERS


def of_the_middle(quantity: str) -> bool:
    """Return whether the bound applies to the median layer and not to each layer."""
    return quantity == "adam_ratio"
