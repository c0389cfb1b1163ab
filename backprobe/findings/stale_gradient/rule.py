"""Rule for gradients of an earlier step that are used again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, LedgerRow
from ...records import ledger as events
from ...text import few, plural
from ..relations.ledger import GIVING, books, names_in
from ..rules import LEARNING, Kind, Question, rule, sites_of

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
    )
)
def stale_gradient(trace: Trace) -> list[Finding]:
    found = []
    for book in books(trace.facts):
        rows = [row for row in book.habits(_is_stale) if row.moved]
        first = min((row.first for row in rows), default=0)
        later = (event for row in book.rows if row.last >= first for event in row.events)
        if not rows or not any(event.what in GIVING for event in later):
            continue
        names, frozen = names_in(rows), [site for row in rows for site in row.frozen_at]
        sites = tuple(dict.fromkeys(frozen))
        is_frozen = any(row.frozen for row in rows)
        why = "is frozen" if is_frozen else "gets no gradient any more"
        whys = "are frozen" if is_frozen else "get no gradient any more"
        found.append(
            Finding(
                kind="stale-gradient",
                severity="warning",
                title=f"{few(names)} {plural(names, why, whys)}, but {book.optimizer.name} still moves "
                f"{plural(names, 'it', 'them')}: in each step with the same gradient of an earlier step, from step "
                f"{first} on at the latest",
                confidence="certain",
                step=first,
                parameters=names,
                sites=sites_of(
                    ("stepped", book.optimizer.stepped),
                    *(("frozen", site) for site in sites if len(sites) == 1),
                    ("optimizer", book.optimizer.made),
                ),
                evidence={
                    "optimizer": book.optimizer.name,
                    "frozen": is_frozen,
                    "periods": sum(row.periods for row in rows),
                    **({"candidates": [str(site) for site in sites]} if len(sites) > 1 else {}),
                },
                advice="Set .grad to None if you freeze a parameter, and clear the gradients of all parameters of the "
                "optimizer in each step: optimizer.zero_grad() also clears those of frozen ones.",
            )
        )
    return found


def _is_stale(row: LedgerRow) -> bool:
    return row.events[-1].what == events.USED_AGAIN and not any(e.what in GIVING for e in row.events)
