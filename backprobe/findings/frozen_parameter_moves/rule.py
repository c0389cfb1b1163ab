"""Rule for parameters whose gradients the script sets to zero, and that the optimizer moves all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few, plural
from ...records import Finding, LedgerRow
from ...records import ledger as events
from ..relations.ledger import MIN_PERIODS, books, names_in
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "frozen-parameter-moves",
        "warning",
        "parameters are frozen by zero gradients, and the optimizer moves them by momentum or weight decay",
        rank=LEARNING + 7,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that sets the gradients to zero",
    )
)
def frozen_parameter_moves(trace: Trace) -> list[Finding]:
    found = []
    for book in books(trace.facts):
        rows = book.habits(_is_zeroed)
        names = names_in(rows)
        moved, kept = sum(row.moved for row in rows), sum(row.kept for row in rows)
        if moved < MIN_PERIODS or kept or not names or set(names) == book.names:
            continue
        zeroed = next(
            (e.site for row in rows for e in reversed(row.events) if e.what == events.ZEROED and e.site), None
        )
        first, name = min(row.first for row in rows), book.optimizer.name
        found.append(
            Finding(
                kind="frozen-parameter-moves",
                severity="warning",
                title=f"{few(names)} {plural(names, 'has', 'have')} gradients of zero, but {name} still moves "
                f"{plural(names, 'it', 'them')} by momentum or weight decay, since step {first} or earlier",
                confidence="certain",
                step=first,
                parameters=names,
                sites=sites_of(
                    ("zeroed", zeroed), ("stepped", book.optimizer.stepped), ("optimizer", book.optimizer.made)
                ),
                evidence={"optimizer": name, "periods": sum(row.periods for row in rows)},
                advice="To freeze a parameter, set its .grad to None, or take it out of the optimizer: an optimizer "
                "skips a parameter without a gradient, but applies momentum and weight decay to one whose gradient is "
                "zero.",
            )
        )
    return found


def _is_zeroed(row: LedgerRow) -> bool:
    """Return whether the script set a gradient to zero after the last backward call, before the optimizer stepped."""
    whats = [e.what for e in row.events]
    gave = max((i for i, what in enumerate(whats) if what in events.GIVING), default=-1)
    return whats[-1] == events.USED_ZERO and (row.frozen or (gave >= 0 and events.ZEROED in whats[gave + 1 :]))
