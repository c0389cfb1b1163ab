"""The bounds of alarms, for those who draw them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from .alarms import BEGIN, BEHIND, DEAD, FIRST, GROWN, HEADROOM, OF_PARAMETERS, SATURATED, UPDATE

__all__ = ["BEGIN", "FIRST", "bound", "of_matrices", "of_the_middle"]

#: Quantities whose bound is the same for all layers.
_SAME = {"update_ratio": UPDATE, "headroom": HEADROOM, "adam_ratio": BEHIND, "dead": DEAD[0], "saturated": SATURATED[0]}


def bound(quantity: str, first: Sequence[float]) -> float | None:
    """Beyond what `quantity` of a layer gives an alarm, in some looks in a row: above it, or below where small values
    are bad; ``None`` where there is no such number, or not yet.

    :param first: its first ``FIRST`` looks from step ``BEGIN`` on.
    """
    if quantity in _SAME:
        return _SAME[quantity]
    if quantity not in GROWN or len(first) < FIRST:
        return None
    level, times, _ = GROWN[quantity]
    return float(max(level, times * median(first[:FIRST])))


def of_matrices(quantity: str) -> bool:
    """Whether the bound is for matrices only."""
    return quantity in OF_PARAMETERS


def of_the_middle(quantity: str) -> bool:
    """Whether the bound is for the layer in the middle."""
    return quantity == "adam_ratio"
