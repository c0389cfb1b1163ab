"""Rule for parameters that every step leaves as they are, because the update is rounded away."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import counted, few, listed, plural
from ...records import Finding, LedgerChanges
from ...records import ledger as events
from ..relations.ledger import Book, books
from ..rules import LEARNING, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

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
    """Report parameters in 16 bits that never change, or mostly do not, because rounding swallows the updates."""
    found = []
    for book in books(trace.facts):
        kept = _kept(book)
        lost = {} if kept else _mostly_lost(book, trace.facts.of(LedgerChanges))
        if kept:
            names, least = tuple(kept), min(kept.values())
            title = (
                f"{few(names)} never {plural(names, 'changes', 'change')}: in at least {counted(least, 'step')} with a "
                f"gradient, the update of {book.optimizer.name} was rounded away"
            )
            found.append(_finding(book, names, title, {"compared": least}))
        elif lost:
            names, share = tuple(lost), median(lost.values())
            title = (
                f"{share:.0%} of the elements of {few(names)} stay as they are in a step (median of the measured "
                f"steps): {book.optimizer.name}'s update of them was rounded away"
            )
            found.append(_finding(book, names, title, {"rounded_share": share}))
    return found


def _finding(book: Book, names: tuple[str, ...], title: str, evidence: dict[str, object]) -> Finding:
    """Return the finding for parameters of one optimizer, with their dtypes and the lines that cast them."""
    rows = [row for row in book.rows if not set(names).isdisjoint(row.parameters)]
    dtypes = sorted({row.dtype for row in rows if row.dtype})
    sites = tuple(dict.fromkeys(site for row in rows for site in row.cast_at))
    return Finding(
        kind="update-rounds-away",
        severity="warning",
        title=f"{title} in {listed(dtypes)}",
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
            **evidence,
            **candidates(sites if len(sites) > 1 else ()),
        },
        advice="Keep the parameters in float32 and compute in 16 bits with torch.autocast, or use an optimizer that "
        "keeps a copy in float32.",
    )


def _mostly_lost(book: Book, measured: Sequence[LedgerChanges]) -> dict[str, float]:
    """Return the parameters most of whose elements a step leaves unchanged, with the median share of such elements.

    Empty unless these are most of the parameters in 16 bits of which enough steps were measured.
    """
    narrow = {name for row in book.rows if row.dtype in NARROW_DTYPES for name in row.parameters}
    shares = {}
    for one in measured:
        known = [c.rounded for c in one.changes if c.gradient is not None and c.explained]
        if (
            one.optimizer == book.optimizer.number
            and one.parameter in narrow
            and len(known) >= thresholds.ROUNDED_UPDATE_MIN_MEASURED
        ):
            shares[one.parameter] = median(known)
    lost = {name: share for name, share in shares.items() if share >= thresholds.ROUNDED_UPDATE_MIN_LOST_SHARE}
    return lost if 2 * len(lost) > len(shares) else {}


def _kept(book: Book) -> dict[str, int]:
    """Return the parameters in 16 bits that no compared step with a gradient changed, with the number of such steps."""
    counts: dict[str, int] = {}
    moved: set[str] = set()
    for row in book.rows:
        if row.moved or row.frozen or row.dtype not in NARROW_DTYPES:
            moved.update(row.parameters)
        elif row.events[-1].what == events.USED:
            for name in row.parameters:
                counts[name] = counts.get(name, 0) + row.kept
    return {
        name: count
        for name, count in counts.items()
        if count >= thresholds.ROUNDED_UPDATE_MIN_STEPS and name not in moved
    }
