"""Rule for gradients of another loss that an optimizer uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import few
from ...records import Finding, LedgerEvent, LedgerRow
from ...records import ledger as events
from ..relations.ledger import Book, books, names_in, site_in
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "foreign-gradient",
        "warning",
        "an optimizer uses gradients that a backward call made for the step of another optimizer",
        rank=LEARNING + 4,
        questions=(Question.LEARNS_BADLY,),
        points_to="the step that lacks a `zero_grad` before it, and the other backward call",
        diverges=True,
    )
)
def foreign_gradient(trace: Trace) -> list[Finding]:
    """Report optimizers that step with gradients from a backward call that was made for the step of another optimizer.

    Only if this happens in most periods of the ledger, and for nearly all parameters that the optimizer trains.
    """
    found = []
    for book in books(trace.facts):
        rows = book.habits(lambda row: _foreign(row) is not None)
        if not rows or not _reaches_all(book, rows):
            continue
        pair = _foreign(rows[0])
        assert pair is not None
        foreign, other, own = pair
        names, name = names_in(rows), book.optimizer.name
        found.append(
            Finding(
                kind="foreign-gradient",
                severity="warning",
                title=f"{name} steps with gradients of two losses for {few(names, 2)}: those of an earlier backward "
                "call, made for another optimizer, were not cleared",
                confidence="likely",
                step=rows[0].first,
                parameters=names,
                sites=sites_of(
                    ("stepped", book.optimizer.stepped),
                    ("foreign", foreign.site),
                    ("used", other.site),
                    ("backward", own.site),
                    ("cleared", site_in(rows, *events.CLEARING)),
                    ("optimizer", book.optimizer.made),
                ),
                evidence={"optimizer": name, "periods": sum(row.periods for row in rows)},
                advice=f"Call zero_grad() of this {name} just before the backward call of its own loss. If both losses "
                "should train these parameters, step both optimizers after the second backward call.",
            )
        )
    return found


def _foreign(row: LedgerRow) -> tuple[LedgerEvent, LedgerEvent, LedgerEvent] | None:
    """Return three events: the foreign gradient, the other optimizer's step, and the gradient of the optimizer's own
    loss.

    The first backward call reached the parameters of both optimizers, the last only those of this one. An optimizer
    that has no such call of its own trains parts that several losses share. ``None`` if the period does not have this
    form.
    """
    if row.events[-1].what != events.USED or any(e.what in (events.SHARED_STEP, events.REPLACED) for e in row.events):
        return None
    gone = max((i for i, e in enumerate(row.events) if e.what in events.CLEARING), default=-1)
    rest = row.events[gone + 1 :]
    for j, step in enumerate(rest):
        if step.what != events.OTHER_STEP:
            continue
        (other,) = step.optimizers
        before = [e for e in rest[:j] if e.what in events.GIVING and other in e.optimizers]
        after = [e for e in rest[j + 1 :] if e.what in events.GIVING and other not in e.optimizers]
        if (
            before
            and after
            and len(after[0].optimizers) == 1
            and len(before) + len(after) == sum(e.what in events.GIVING for e in rest)
        ):
            return before[-1], step, after[0]
    return None


def _reaches_all(book: Book, rows: list[LedgerRow]) -> bool:
    """Return whether nearly all parameters that the optimizer trains are in `rows`, those with foreign gradients."""
    trained = {name for row in book.rows if row.events[-1].what == events.USED for name in row.parameters}
    return len(names_in(rows)) >= thresholds.FOREIGN_GRADIENT_MIN_SHARE * len(trained)
