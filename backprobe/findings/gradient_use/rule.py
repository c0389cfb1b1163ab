"""Rules for gradients that an optimizer uses more than once or never: missing or misplaced calls of a training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import few, plural
from ...records import Finding, GradientUse, LedgerEvent, LedgerRow
from ...records import ledger as events
from ..relations.ledger import Book, books, names_in, site_in
from ..rules import LEARNING, Kind, Question, rule, sites_of
from ..unregistered.rule import not_in_optimizer

if TYPE_CHECKING:
    from ...traces import Trace

#: Title and advice by reason.
_UNUSED = {
    "cleared": (
        "{optimizer} finds no gradients when it steps{since}: what backward() gives to its parameters is cleared "
        "before",
        "Clear gradients before backward(), or after step(): zero_grad(), backward(), step(), in this order.",
    ),
    "unused": (
        "backward() gives gradients, and {optimizer}, which was made from these parameters, never steps: nothing is "
        "trained",
        "Call {optimizer}'s step() after backward(), and zero_grad() once in each step.",
    ),
}


@rule(
    Kind(
        "gradient-not-cleared",
        "warning",
        "an optimizer uses the gradients of earlier steps again: the script does not clear them",
        rank=LEARNING + 5,
        questions=(Question.LEARNS_BADLY,),
        points_to="the step that lacks a `zero_grad` before it",
        diverges=True,
    )
)
def not_cleared(trace: Trace) -> list[Finding]:
    """Report optimizers that step with gradients to which those of earlier steps were added, since nothing
    clears them.
    """
    return [
        Finding(
            kind="gradient-not-cleared",
            severity="warning",
            title=f"{seen.optimizer} steps with gradients that hold those of earlier steps, from step {seen.step} on: "
            "nobody clears them, and backward() adds to what is there",
            confidence="certain",
            step=seen.step,
            sites=sites_of(("stepped", seen.stepped), ("backward", seen.backward), ("optimizer", seen.made)),
            evidence={"optimizer": seen.optimizer},
            advice=f"Call zero_grad() of this {seen.optimizer} once in each step: after step(), or before the first "
            "backward() of the next. To add up over several batches, step only after the last of them.",
        )
        for seen in trace.facts.of(GradientUse)
        if seen.how == "again"
    ]


@rule(also=("gradient-not-cleared",))
def not_cleared_by_hand(trace: Trace) -> list[Finding]:
    """Report scripts without an optimizer whose updates use the sum of all gradients so far, since nothing
    clears them.
    """
    return [
        Finding(
            kind="gradient-not-cleared",
            severity="warning",
            title="backward() adds to gradients that an update by hand has used already: nobody clears them, so each "
            "update uses the sum of all gradients so far",
            confidence="certain",
            sites=sites_of(("backward", seen.backward), ("stepped", seen.stepped)),
            evidence={"reason": "by-hand"},
            advice="Clear the gradients once in each step, after the update or before backward(): p.grad = None for "
            "each parameter, or model.zero_grad().",
        )
        for seen in trace.facts.of(GradientUse)
        if seen.how == "by-hand"
    ]


@rule(
    Kind(
        "gradient-not-used",
        "warning",
        "backward calls give gradients, and the optimizer never gets to see them",
        rank=LEARNING + 6,
        questions=(Question.NOT_LEARNING,),
        points_to="the step, and the line that cleared the gradients before it",
    )
)
def not_used(trace: Trace) -> list[Finding]:
    """Report optimizers whose gradients are cleared before the step, or that otherwise never use them."""
    found = []
    for seen in trace.facts.of(GradientUse):
        if seen.how not in _UNUSED:
            continue
        since = f", from step {seen.step} on" if seen.step else ""
        title, advice = (text.format(optimizer=seen.optimizer, since=since) for text in _UNUSED[seen.how])
        found.append(
            Finding(
                kind="gradient-not-used",
                severity="warning",
                title=title,
                confidence="certain" if seen.how == "cleared" else "likely",
                step=seen.step or None,
                sites=sites_of(
                    ("stepped", seen.stepped),
                    ("cleared", seen.cleared),
                    ("backward", seen.backward),
                    ("optimizer", seen.made),
                ),
                evidence={"optimizer": seen.optimizer, "reason": seen.how},
                advice=advice,
            )
        )
    return found


@rule(also=("gradient-not-used",))
def rebound(trace: Trace) -> list[Finding]:
    """Report updates by hand that only assign a new tensor to the loop's variable, so that no weight changes."""
    return [
        Finding(
            kind="gradient-not-used",
            severity="warning",
            title="backward() gives gradients, and no weight changes: the update makes a new tensor and assigns it to "
            "the variable of the loop, not to the parameter",
            confidence="likely",
            sites=sites_of(("stepped", seen.stepped), ("backward", seen.backward)),
            evidence={"reason": "rebound"},
            advice="Write to the parameter in place: with torch.no_grad(): p -= lr * p.grad.",
        )
        for seen in trace.facts.of(GradientUse)
        if seen.how == "rebound"
    ]


@rule(also=("gradient-not-used",))
def discarded(trace: Trace) -> list[Finding]:
    """Report optimizers that use only the last of several backward calls on one line: the script clears the other
    gradients.
    """
    found = []
    for book in books(trace.facts):
        rows = book.habits(lambda row: _discarded(row) is not None) if not book.optimizer.reads else []
        used = [row for row in rows if row.events[-1].what == events.USED]
        if not used:
            continue
        calls = [_discarded(row) for row in used]
        lost, gave = max((one for one in calls if one is not None), key=lambda one: one[0])
        names = names_in([*used, *(row for row in rows if row not in used)])
        idle = names_in([row for row in rows if row.events[-1].what == events.SKIPPED and row.parameters])
        untrained = tuple(name for name in idle if name not in names_in(used))
        name = book.optimizer.name
        nothing = f"; {few(untrained, 2)} {plural(untrained, 'gets', 'get')} no update at all" if untrained else ""
        found.append(
            Finding(
                kind="gradient-not-used",
                severity="warning",
                title=f"{name} uses only the last of {lost + 1} backward calls in each step: the gradients of the "
                f"{'other one' if lost == 1 else f'other {lost}'} are cleared first{nothing}",
                confidence="certain",
                step=min(row.first for row in rows),
                parameters=names,
                sites=sites_of(
                    ("cleared", site_in(rows, *events.CLEARING)),
                    ("backward", gave.site),
                    ("stepped", book.optimizer.stepped),
                    ("optimizer", book.optimizer.made),
                ),
                evidence={"optimizer": name, "reason": "discarded", "lost": lost, "calls": lost + 1},
                advice="To add up gradients over several batches, clear them only after the step: zero_grad() must not "
                "run between the first backward() of a step and step().",
            )
        )
    return found


def _discarded(row: LedgerRow) -> tuple[int, LedgerEvent] | None:
    """Return how many backward calls gave gradients that were cleared unused, and the first of these calls.

    ``None`` if there are none, if they are on other lines than the call whose gradient was used, or if anything else
    used or changed the weight or gradient before.
    """
    if row.events[-1].what not in (events.USED, events.SKIPPED):
        return None
    lost: list[LedgerEvent] = []
    here: list[LedgerEvent] = []
    for event in row.events[:-1]:
        if event.what in events.GIVING:
            here.append(event)
        elif event.what in events.CLEARING:
            lost, here = [*lost, *here], []
        elif event.what != events.SCALED:
            return None
    if not lost or (row.events[-1].what == events.USED) != bool(here):
        return None
    if len({(event.site, event.optimizers) for event in (*lost, *here)}) > 1:
        return None
    return sum(event.times for event in lost), lost[0]


@rule(also=("gradient-not-used",))
def idle(trace: Trace) -> list[Finding]:
    """Report optimizers with many steps, none of whose parameters ever has a gradient.

    Parameters of a model that the script calls, or called, are left to other rules.
    """
    if not_in_optimizer(trace):
        return []
    found, known = [], {parameter.name for parameter in trace.parameters}
    for book in books(trace.facts):
        idle = all([event.what for event in row.events] == [events.SKIPPED] for row in book.rows)
        if (
            not book.rows
            or not idle
            or book.optimizer.periods < thresholds.UNUSED_GRADIENT_MIN_PERIODS
            or not known.isdisjoint(book.names)
        ):
            continue
        name = book.optimizer.name
        found.append(
            Finding(
                kind="gradient-not-used",
                severity="warning",
                title=f"none of the parameters of {name} ever gets a gradient: the backward calls reach other tensors, "
                "such as copies of them",
                confidence="certain",
                parameters=names_in(book.rows),
                sites=sites_of(("stepped", book.optimizer.stepped), ("optimizer", book.optimizer.made)),
                evidence={"optimizer": name, "reason": "idle", "periods": book.optimizer.periods},
                advice="Compute the loss from the parameters that the optimizer holds. Gradients do not flow back from "
                "a deep copy, or from weights that were written through .data.",
            )
        )
    return found


@rule(also=("gradient-not-cleared",))
def added_up(trace: Trace) -> list[Finding]:
    """Report optimizers for which some parameters are never cleared, and closures whose repeated calls add up
    gradients.
    """
    known = {seen.optimizer for seen in trace.facts.of(GradientUse) if seen.how == "again"}
    found = []
    for book in books(trace.facts):
        if book.optimizer.name in known:
            continue
        name, rows = book.optimizer.name, book.habits(_adds_to_used)
        names = names_in(rows)
        rest = (row for row in book.rows if {*names}.isdisjoint(row.parameters))
        others = [row for row in rest if any(event.what in events.CLEARING for event in row.events)]
        if names and others:
            title = f"{name} adds up new and old gradients of {few(names)}: the script clears only those of its other "
            found.append(_not_cleared(book, rows, f"{title}parameters", "part"))
        rows = book.habits(_adds_in_closure, 2)
        if rows:
            title = f"{name} calls its closure several times in a step, and the gradients of these calls add up: the "
            found.append(_not_cleared(book, rows, f"{title}closure does not clear them", "closure"))
    return found


def _not_cleared(book: Book, rows: list[LedgerRow], title: str, reason: str) -> Finding:
    """Return the finding for gradients of an optimizer that are not cleared.

    :param rows: rows of the ledger in which this happens.
    :param reason: "part" if only some parameters are concerned, "closure" if the optimizer calls a closure repeatedly.
    """
    gave = site_in(rows, *events.GIVING)
    in_closure = reason == "closure"
    cleared = site_in(rows if in_closure else book.rows, *events.CLEARING)
    return Finding(
        kind="gradient-not-cleared",
        severity="warning",
        title=title,
        confidence="certain",
        step=min(row.first for row in rows),
        parameters=() if in_closure else names_in(rows),
        sites=sites_of(
            ("stepped", book.optimizer.stepped),
            ("backward", gave),
            ("cleared", cleared),
            ("optimizer", book.optimizer.made),
        ),
        evidence={"optimizer": book.optimizer.name, "reason": reason},
        advice="Call zero_grad() inside the closure, before its backward()."
        if in_closure
        else "Clear the gradients of all parameters that the optimizer holds: optimizer.zero_grad() does so.",
    )


def _adds_to_used(row: LedgerRow) -> bool:
    """Return whether the optimizer used a gradient that was added to an old one, without a clearing or replacement
    after.
    """
    whats = [event.what for event in row.events]
    if whats[-1] != events.USED or events.ADDED not in whats or events.SHARED_STEP in whats:
        return False
    return not any(what in (*events.CLEARING, events.REPLACED) for what in whats[whats.index(events.ADDED) :])


def _adds_in_closure(row: LedgerRow) -> bool:
    """Return whether a closure added a gradient to one that was computed before the weights moved within
    the same step.
    """
    has_gradient = moved = False
    for event in row.events:
        if event.what in events.GIVING:
            if has_gradient and moved:
                return True
            has_gradient, moved = True, False
        elif event.what == events.MOVED_IN_STEP:
            moved = True
        elif event.what in (*events.CLEARING, events.REPLACED):
            has_gradient = moved = False
    return False
