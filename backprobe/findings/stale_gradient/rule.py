"""Rule for gradients of an earlier step that are used again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few, plural
from ...records import Finding, LedgerRow
from ...records import ledger as events
from ..relations.ledger import books, names_in
from ..rules import LEARNING, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "stale-gradient",
        "warning",
        "an optimizer uses a gradient of an earlier step again: no backward call renews it, and nothing clears it",
        rank=LEARNING + 3,
        questions=(Question.LEARNS_BADLY,),
        points_to="the step, and the line that froze the parameter",
    ),
    silenced_by=("parameter-not-in-optimizer",),  # a parameter that was replaced keeps its last gradient
)
def stale_gradient(trace: Trace) -> list[Finding]:
    """Report optimizers that use the same old gradient of a parameter in each step, since it was frozen or left out."""
    found = []
    for book in books(trace.facts):
        rows = [row for row in book.habits(_is_stale) if row.moved]
        first = min((row.first for row in rows), default=0)
        later = (event for row in book.rows if row.last >= first for event in row.events)
        if not rows or not any(event.what in events.GIVING for event in later):
            continue
        names, frozen = names_in(rows), [row for row in rows if row.frozen]
        sites = tuple(dict.fromkeys(site for row in frozen for site in row.frozen_at))
        inferred = not all(row.frozen_observed for row in frozen)
        why = (
            plural(names, "is frozen", "are frozen")
            if frozen
            else plural(names, "gets", "get") + " no gradient any more"
        )
        found.append(
            Finding(
                kind="stale-gradient",
                severity="warning",
                title=f"{few(names)} {why}, but {book.optimizer.name} still moves "
                f"{plural(names, 'it', 'them')}: it uses the same old gradient in each step, since step {first} or "
                "earlier",
                confidence="likely" if inferred else "certain",
                step=first,
                parameters=names,
                sites=sites_of(
                    ("stepped", book.optimizer.stepped),
                    *(("frozen", site) for site in sites if len(sites) == 1),
                    ("optimizer", book.optimizer.made),
                ),
                evidence={
                    "optimizer": book.optimizer.name,
                    "frozen": bool(frozen),
                    "periods": sum(row.periods for row in rows),
                    **candidates(sites if inferred else ()),
                },
                advice="Set .grad to None if you freeze a parameter, and clear the gradients of all parameters of the "
                "optimizer in each step: optimizer.zero_grad() also clears those of frozen ones.",
            )
        )
    return found


def _is_stale(row: LedgerRow) -> bool:
    """Return whether the optimizer used a gradient again in a period in which no backward call gave one."""
    return row.events[-1].what == events.USED_AGAIN and not any(e.what in events.GIVING for e in row.events)
