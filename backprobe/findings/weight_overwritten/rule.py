"""Rule for weights that the script changes during training and does not change back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few, plural
from ...records import Finding, LedgerRow
from ...records import ledger as events
from ..relations.ledger import books, names_in, site_in
from ..rules import LEARNING, Kind, Question, rule, sites_of
from .merged import merged_updates

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "weight-overwritten",
        "warning",
        "the script changes weights in a step, or frozen ones between steps, and does not change them back",
        rank=LEARNING + 8,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that changes the weight",
        diverges=True,
    )
)
def weight_overwritten(trace: Trace) -> list[Finding]:
    """Report weights that the script changes between two backward calls and that the optimizer then updates
    as changed.

    Also frozen weights to which the script adds an update that it does not take out before training goes on.
    """
    found = merged_updates(trace)
    for book in books(trace.facts):
        rows = book.habits(_is_perturbed)
        if not rows:
            continue
        names, name = names_in(rows), book.optimizer.name
        written = site_in(rows, events.WRITTEN)
        calls = [e.site for e in rows[0].events if e.what in events.GIVING]
        found.append(
            Finding(
                kind="weight-overwritten",
                severity="warning",
                title=f"{few(names)} {plural(names, 'is', 'are')} changed between two backward calls of each step, "
                f"and still {plural(names, 'has', 'have')} the changed values when {name} steps",
                confidence="certain" if written is not None else "likely",
                step=min(row.first for row in rows),
                parameters=names,
                sites=sites_of(
                    ("mutated", written),
                    ("backward", calls[0]),
                    ("second", calls[-1]),
                    ("stepped", book.optimizer.stepped),
                ),
                evidence={"optimizer": name, "periods": sum(row.periods for row in rows)},
                advice="Before the change, keep a copy of the weights (.detach().clone(); .data is the same memory, "
                "and restores nothing). Copy it back before the optimizer steps.",
            )
        )
    return found


def _is_perturbed(row: LedgerRow) -> bool:
    """Return whether the weight changed between two backward calls and was not restored before the step."""
    whats = [e.what for e in row.events]
    if whats[-1] != events.USED or events.SHARED_STEP in whats or events.RESTORED in whats:
        return False
    gave = [i for i, what in enumerate(whats) if what in events.GIVING]
    return bool(gave) and events.WRITTEN in whats[gave[0] : gave[-1]]
