"""Derives how the loss of a run changed."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from ... import thresholds
from ...records import LossGrowth

if TYPE_CHECKING:
    from ...traces import Trace


class LossEnds(NamedTuple):
    """The median losses of the first and of the last known steps, and the lower quartile of the first ones."""

    first: float
    last: float
    low: float


def loss_ends(trace: Trace, parts: int = 4) -> LossEnds | None:
    """Return the median losses of the first and the last of `parts` parts of a run; ``None`` if no loss is known."""
    losses = [row.loss for row in trace.step_rows() if row.loss is not None]
    part = max(1, len(losses) // parts)
    if not losses:
        return None
    first = sorted(losses[:part])
    return LossEnds(statistics.median(first), statistics.median(losses[-part:]), first[part // 4])


def falls_below_best(trace: Trace, since: int, parts: int = 8) -> bool:
    """Return whether the losses at the end of a run are lower than those in every earlier part of it, up to `since`.

    Medians of equal numbers of known losses are compared. Return ``False`` if less than that many are from before
    step `since`.
    """
    rows = [(row.index, row.loss) for row in trace.step_rows() if row.loss is not None]
    part = max(1, len(rows) // parts)
    before = [loss for index, loss in rows[:-part] if index < since]
    medians = [statistics.median(before[at : at + part]) for at in range(len(before) - part + 1)]
    return bool(medians) and statistics.median([loss for _, loss in rows[-part:]]) < min(medians)


def growth_to_overflow(trace: Trace) -> LossGrowth | None:
    """Return the growth of the loss to its first value that is not finite, if it took several steps; otherwise
    ``None``.
    """
    for grown in trace.facts.of(LossGrowth):
        rises = grown.medians[-1] > max(grown.first, *grown.medians[:-1])
        if (
            rises
            and grown.until - grown.since >= thresholds.DIVERGENCE_MIN_STEPS
            and grown.last >= thresholds.DIVERGENCE_MIN_LOSS_FACTOR * grown.first
        ):
            return grown
    return None
