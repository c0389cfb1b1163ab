"""Rule for parameters that every step leaves as they are, because the update is rounded away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import counted, few, listed, plural
from ...records import Finding
from ...records import ledger as events
from ..relations.ledger import Book, books
from ..rules import LEARNING, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: The least number of steps with a gradient in which a parameter was compared, and stayed as it was each time.
MIN_KEPT = 8
#: In float32, an update that rounds away belongs to a gradient of rounding size, as that of a bias before BatchNorm.
NARROW_DTYPES = ("bfloat16", "float16")


@rule(
    Kind(
        "update-rounds-away",
        "warning",
        "steps leave parameters bit for bit as they are: their updates are smaller than the spacing of the dtype",
        rank=LEARNING + 13,
        questions=(Question.NOT_LEARNING,),
        points_to="the cast to 16 bits",
    ),
    silenced_by=("learning-rate-zero", "zero-grad"),
)
def update_rounds_away(trace: Trace) -> list[Finding]:
    found = []
    for book in books(trace.facts):
        kept = _kept(book)
        if not kept:
            continue
        rows = [row for row in book.rows if not kept.keys().isdisjoint(row.parameters)]
        names, dtypes = tuple(kept), sorted({row.dtype for row in rows if row.dtype})
        sites = tuple(dict.fromkeys(site for row in rows for site in row.cast_at))
        least = min(kept.values())
        found.append(
            Finding(
                kind="update-rounds-away",
                severity="warning",
                title=f"{few(names)} never {plural(names, 'changes', 'change')}: in at least {counted(least, 'step')} "
                f"with a gradient, the update of {book.optimizer.name} was rounded away in {listed(dtypes)}",
                confidence="likely",
                step=min(row.first for row in rows),
                parameters=names,
                sites=sites_of(
                    *(("cause", site) for site in sites if len(sites) == 1),
                    ("stepped", book.optimizer.stepped),
                    ("optimizer", book.optimizer.made),
                ),
                evidence={
                    "optimizer": book.optimizer.name,
                    "dtypes": dtypes,
                    "compared": least,
                    **candidates(sites if len(sites) > 1 else ()),
                },
                advice="Keep the parameters in float32 and compute in 16 bits with torch.autocast, or use an optimizer "
                "that keeps a copy in float32.",
            )
        )
    return found


def _kept(book: Book) -> dict[str, int]:
    """Return the parameters that no compared step with a gradient has moved, with the number of these steps."""
    counts: dict[str, int] = {}
    moved: set[str] = set()
    for row in book.rows:
        if row.moved or row.frozen or row.dtype not in NARROW_DTYPES:
            moved.update(row.parameters)
        elif row.events[-1].what == events.USED:
            for name in row.parameters:
                counts[name] = counts.get(name, 0) + row.kept
    return {name: count for name, count in counts.items() if count >= MIN_KEPT and name not in moved}
