"""Rule for optimizers whose updates are below a millionth of the weights, in the whole run or since a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import counted, few, number
from ...records import Finding, ScheduleSeen, Site, TinyUpdates, UselessClipping
from ...records import ledger as events
from ...traces.steps import numbers_of
from ..relations.ledger import Book, books, names_in
from ..relations.losses import loss_ends
from ..rules import Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "update-too-small",
        "warning",
        "updates are too small to move a weight",
        after="saturated-units",
        questions=(Question.NOT_LEARNING,),
        points_to="the line that clips, or that makes the optimizer or the schedule",
    ),
    silenced_by=("learning-rate-zero", "plateau-wrong-direction", "update-rounds-away"),
)
def update_too_small(trace: Trace) -> list[Finding]:
    """Report optimizers all of whose updates are tiny relative to the weights, in the whole run or since a schedule's
    end.

    ``--check levels`` reports single weights instead.
    """
    seen, steps = trace.facts.of(TinyUpdates), max(numbers_of(trace.steps), default=0) + 1
    if not seen or steps < thresholds.TINY_UPDATE_MIN_STEPS or "levels" in trace.facts.asked:
        return []
    found = _scheduled(trace, [one for one in seen if one.since], steps)
    until = steps * (1 - thresholds.TINY_UPDATE_LAST_PART)
    tiny = {
        one.parameter: one
        for one in seen
        if one.steps >= thresholds.TINY_UPDATE_MIN_MEASURED and not one.since and one.until >= until
    }
    if not tiny:
        return found
    fell = _fell(trace)
    vectors = {one.name for one in trace.parameters if len(one.shape) < 2}
    for book in books(trace.facts):
        names = names_in(book.rows)
        # A vector that began as zeros is changed by a large part of its norm, however small the change is.
        counted = [name for name in names if name not in vectors] or names
        updates = [tiny[name] for name in counted if name in tiny]
        grow = any(one.last > thresholds.TINY_UPDATE_WARMUP_GROWTH * one.first for one in updates)
        moves = any(one.largest for one in updates)
        stays = not fell if moves else _round_away(book, counted)
        if len(updates) == len(counted) and not grow and stays:
            found.append(_finding(book, updates, _clipping_of(trace, book)))
    return found


def _fell(trace: Trace) -> bool:
    """Return whether the loss fell noticeably between the first and the last known steps, by more than it varies."""
    losses = loss_ends(trace)
    if losses is None:
        return False
    return losses.last < min(
        losses.low, losses.first - (1 - thresholds.TINY_UPDATE_LOSS_FALLEN_SHARE) * abs(losses.first)
    )


def _scheduled(trace: Trace, tiny: Sequence[TinyUpdates], steps: int) -> list[Finding]:
    """Return findings for optimizers whose rate a schedule has reduced until no matrix moves.

    :param tiny: the parameters whose updates became tiny at some step.
    :param steps: the number of steps of the run.
    """
    schedules = [one for one in trace.facts.of(ScheduleSeen) if one.calls and one.low_since is not None]
    losses = loss_ends(trace, parts=10)
    if losses is not None and 0 <= losses.last < thresholds.TINY_UPDATE_CONVERGED_SHARE * losses.first:
        return []
    found, vectors = [], {one.name for one in trace.parameters if len(one.shape) < 2}
    for book in books(trace.facts) if schedules and tiny else ():
        names = [name for name in names_in(book.rows) if name not in vectors] or names_in(book.rows)
        updates = [
            one
            for one in tiny
            if one.parameter in names and one.steps >= thresholds.TINY_UPDATE_MIN_MEASURED_OF_SCHEDULE
        ]
        mine = [one for one in schedules if (one.optimizer, one.optimizer_made) == _identity(book)]
        if len(updates) < len(names):
            return []  # this optimizer goes on
        if not mine:
            continue
        by = max(mine, key=lambda one: one.calls)
        low, since = by.low_since or 0, max(one.since for one in updates)
        if (
            steps - low >= max(thresholds.TINY_UPDATE_MIN_STEPS, thresholds.TINY_UPDATE_MIN_LOW_SHARE * steps)
            and steps - max(low, since) >= thresholds.TINY_UPDATE_MIN_TINY_STEPS
        ):
            since = max(low, since)
            found.append(_finding_of_schedule(by, updates, since, steps))
    return found


def _identity(book: Book) -> tuple[str, Site | None]:
    """Return the name of a book's optimizer and the line that made it."""
    return book.optimizer.name, book.optimizer.made


def _finding_of_schedule(by: ScheduleSeen, updates: Sequence[TinyUpdates], since: int, steps: int) -> Finding:
    """Return the finding for a schedule (`by`) because of which no matrix moves from step `since` on."""
    largest = max(one.largest for one in updates)
    return Finding(
        kind="update-too-small",
        severity="warning",
        title=f"{by.scheduler} has reduced the learning rate of {by.optimizer} from {number(by.highest)} to "
        f"{number(by.last)} in {counted(by.calls, 'call')} of its step(): from step {since} on, in {steps - since} of "
        f"{steps} steps, no matrix changes by more than {number(largest)} of its norm",
        confidence="likely",
        step=since,
        parameters=tuple(one.parameter for one in updates),
        sites=sites_of(("cause", by.stepped), ("cause", by.made), ("optimizer", by.optimizer_made)),
        evidence={
            "optimizer": by.optimizer,
            "scheduler": by.scheduler,
            "calls": by.calls,
            "highest_rate": by.highest,
            "rate": by.last,
            "largest": largest,
            "measured_steps": min(one.steps for one in updates),
        },
        advice=f"Call the step() of {by.scheduler} as often as its settings assume: once per epoch, if they count "
        "epochs. Or let the rate fall more slowly, and set a lower bound.",
    )


def _round_away(book: Book, names: Sequence[str]) -> bool:
    """Return whether updates leave weights as they are because they are too small for the dtype.

    Otherwise an optimizer may add gradients up over several steps, of which the measured ones move nothing.
    """
    rounded = {
        name
        for row in book.rows
        for name in row.parameters
        if any(stay.cause in (events.ROUNDED, events.CLIPPED) for stay in row.stayed)
    }
    return rounded.issuperset(names)


def _clipping_of(trace: Trace, book: Book) -> UselessClipping | None:
    """Return the call that leaves next to nothing of the gradients of an optimizer."""
    for seen in trace.facts.of(UselessClipping):
        if seen.reason == "tiny-bound" and (seen.optimizer, seen.made) == _identity(book):
            return seen
    return None


def _finding(book: Book, updates: Sequence[TinyUpdates], clipping: UselessClipping | None) -> Finding:
    """Return the finding for an optimizer all of whose updates are tiny.

    :param clipping: the call that leaves next to nothing of its gradients, if one does.
    """
    names, optimizer = tuple(one.parameter for one in updates), book.optimizer
    largest, steps = max(one.largest for one in updates), min(one.steps for one in updates)
    share = clipping.bound / clipping.norm if clipping is not None and clipping.norm else None
    why = f"; clipping leaves {number(share)} of the gradients' norm" if share is not None else ""
    by_how_much = f"by more than {number(largest)} of its norm" if largest else "at all, though they have gradients"
    clipped = clipping.clipped if clipping is not None else None
    return Finding(
        kind="update-too-small",
        severity="warning",
        title=f"no step of {optimizer.name} changes {few(names)} {by_how_much}{why}",
        confidence="likely",
        parameters=names,
        sites=sites_of(("cause", clipped), ("optimizer", optimizer.made), ("stepped", optimizer.stepped)),
        evidence={"optimizer": optimizer.name, "largest": largest, "measured_steps": steps, "clipped_share": share},
        advice="Clip to a larger norm: this bound is far below the norms of the gradients."
        if share is not None
        else "Print the learning rate of each parameter group, and look for a factor that makes the loss or its "
        "gradients tiny. Updates of about a thousandth of the weights are usual.",
    )
