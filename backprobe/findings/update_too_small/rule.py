"""Rule for optimizers whose updates are below a millionth of the weights in the whole run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...records import Finding, TinyUpdates
from ...text import few, number
from ...traces.steps import numbers_of
from ..relations.ledger import Book, books, names_in
from ..rules import Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: The least number of steps of the run, and of those in which updates of each parameter were measured.
MIN_STEPS, MIN_MEASURED = 50, 15
#: If the loss fell to this share of its first values, the model learns, however small its updates are.
FALLEN_SHARE = 0.95
#: Updates that grow by this factor over the run belong to a warm-up.
GROWTH = 10.0
#: Clipping that leaves less than this share of the gradient is named as the cause.
CLIPPED_SHARE = 1e-3


@rule(
    Kind(
        "update-too-small",
        "warning",
        "updates are too small to move a weight",
        after="saturated-units",
        questions=(Question.NOT_LEARNING,),
        points_to="the optimizer",
    ),
)
def update_too_small(trace: Trace) -> list[Finding]:
    """Report an optimizer all of whose updates are tiny; ``--check levels`` reports single weights instead."""
    tiny = {one.parameter: one for one in trace.facts.of(TinyUpdates) if one.steps >= MIN_MEASURED}
    if not tiny or max(numbers_of(trace.steps), default=0) + 1 < MIN_STEPS:
        return []
    if "levels" in trace.facts.asked or _fell(trace):
        return []
    found, clipped = [], _clipped_share(trace)
    vectors = {one.name for one in trace.parameters if len(one.shape) < 2}
    for book in books(trace.facts):
        names = names_in(book.rows)
        # A vector that began as zeros is changed by a large part of its norm, however small the change is.
        counted = [name for name in names if name not in vectors] or names
        updates = [tiny[name] for name in counted if name in tiny]
        grow = any(one.last > GROWTH * one.first for one in updates)
        if len(updates) == len(counted) and any(one.largest for one in updates) and not grow:
            found.append(_finding(book, updates, clipped))
    return found


def _fell(trace: Trace) -> bool:
    """Return whether the loss in the last known steps is below that in the first."""
    losses = [row.loss for row in trace.step_rows() if row.loss is not None]
    part = max(1, len(losses) // 4)
    if not losses:
        return False
    first, last = statistics.median(losses[:part]), statistics.median(losses[-part:])
    return last < first - (1 - FALLEN_SHARE) * abs(first)


def _clipped_share(trace: Trace) -> float:
    """Return the norm of the gradients that optimizers used, relative to that before clipping, in the median step."""
    shares = []
    for row in trace.step_rows():
        used = [value for value in row.values[1::3] if value >= 0]
        if used and row.clip_norm:
            shares.append(sum(value * value for value in used) ** 0.5 / row.clip_norm)
    return statistics.median(shares) if shares else 1.0


def _finding(book: Book, updates: Sequence[TinyUpdates], clipped: float) -> Finding:
    names, optimizer = tuple(one.parameter for one in updates), book.optimizer
    largest, steps = max(one.largest for one in updates), min(one.steps for one in updates)
    why = f"; clipping leaves {number(clipped)} of the gradients' norm" if clipped < CLIPPED_SHARE else ""
    return Finding(
        kind="update-too-small",
        severity="warning",
        title=f"no step of {optimizer.name} changes {few(names)} by more than {number(largest)} of its norm{why}",
        confidence="likely",
        parameters=names,
        sites=sites_of(("optimizer", optimizer.made), ("stepped", optimizer.stepped)),
        evidence={
            "optimizer": optimizer.name,
            "largest": largest,
            "measured_steps": steps,
            "clipped_share": clipped if clipped < CLIPPED_SHARE else None,
        },
        advice="Clip to a larger norm: this bound is far below the norms of the gradients."
        if clipped < CLIPPED_SHARE
        else "Print the learning rate of each parameter group, and look for a factor that makes the loss or its "
        "gradients tiny. Updates of about a thousandth of the weights are usual.",
    )
