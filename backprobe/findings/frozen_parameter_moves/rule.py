"""Rule for parameters whose gradients the script sets to zero, whole or in part, and that the optimizer moves all the
same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import few, plural
from ...records import Finding, LedgerRow, Site, ZeroedElements
from ...records import ledger as events
from ..relations.ledger import books, names_in
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "frozen-parameter-moves",
        "warning",
        "parameters, or rows of them, are frozen by zero gradients, and the optimizer moves them by momentum or weight "
        "decay",
        rank=LEARNING + 7,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that sets gradients to zero, and the step",
    )
)
def frozen_parameter_moves(trace: Trace) -> list[Finding]:
    """Report parameters whose gradients the script sets to zero and that momentum or weight decay moves all the same.

    First whole parameters, from the ledger; then those of which only some elements are set to zero, grouped by line.
    """
    found = []
    for book in books(trace.facts):
        rows = book.habits(_is_zeroed)
        names = names_in(rows)
        moved, kept = sum(row.moved for row in rows), sum(row.kept for row in rows)
        if moved < thresholds.LEDGER_MIN_PERIODS or kept or not names or set(names) == book.names:
            continue
        zeroed = next(_zeroed_at(rows), None)
        # A frozen parameter gets no gradient that could be set to zero again: the line was observed before.
        earlier = {*_zeroed_at([row for row in book.rows if not set(names).isdisjoint(row.parameters)])}
        inferred = zeroed is None and len(earlier) == 1
        if inferred:
            zeroed = earlier.pop()
        first, name = min(row.first for row in rows), book.optimizer.name
        found.append(
            Finding(
                kind="frozen-parameter-moves",
                severity="warning",
                title=f"{few(names)} {plural(names, 'has', 'have')} gradients of zero, but {name} still moves "
                f"{plural(names, 'it', 'them')} by momentum or weight decay, since step {first} or earlier",
                confidence="likely" if inferred else "certain",
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
    whole = {name for one in found for name in one.parameters}
    groups: dict[tuple[object, ...], list[ZeroedElements]] = {}
    for seen in trace.facts.of(ZeroedElements):
        if seen.parameter not in whole:
            groups.setdefault((seen.zeroed, seen.optimizer, seen.made), []).append(seen)
    return [*found, *(_part(group) for group in groups.values())]


def _part(group: list[ZeroedElements]) -> Finding:
    """Return the finding for parameters of which the script sets the gradient of some elements to zero on the same
    line.
    """
    first = group[0]
    names = tuple(one.parameter for one in group)
    whys = {one.why for one in group}
    by = {"decay": "weight decay", "momentum": "momentum"}.get(whys.pop() if len(whys) == 1 else "", "")
    start = min(one.first for one in group)
    largest = max(one.share for one in group)
    share = f"{largest:.0%}" if len(group) == 1 else f"up to {largest:.0%}"
    elements = f"{share} of the elements" if min(one.share for one in group) < 1 else "all elements"
    what = _rows(first) if first.rows and len(group) == 1 and first.share < 1 else elements
    is_row = len(group) == 1 and len(first.rows) == 1
    regrown = max(one.regrown for one in group)
    moved = max((one.moved for one in group if one.moved is not None), default=None)
    if regrown:
        how_far = f": {regrown:.0%} of the weights that were zero are no longer zero"
    else:
        how_far = f": by {_times(moved)} their norm up to the end" if moved is not None else ""
    setter = "a hook sets" if first.by_hook else "the script sets"
    return Finding(
        kind="frozen-parameter-moves",
        severity="warning",
        title=f"{setter} the gradient of {what} of {few(names)} to zero, but {first.optimizer} still moves "
        f"{'it' if is_row else 'them'} by {by or 'momentum or weight decay'}, since step {start} or earlier{how_far}",
        confidence="certain" if len(first.zeroed) == 1 and not any(one.inferred for one in group) else "likely",
        step=start,
        parameters=names,
        sites=sites_of(
            *(("zeroed", site) for site in first.zeroed), ("stepped", first.stepped), ("optimizer", first.made)
        ),
        evidence={
            "optimizer": first.optimizer,
            "periods": max(one.looks for one in group),
            "share": round(max(one.share for one in group), 4),
            **({"moved": round(moved, 5)} if moved is not None else {}),
            **({"regrown": round(regrown, 4)} if regrown else {}),
        },
        advice=_advice(by, bool(first.rows), min(one.share for one in group) == 1),
    )


def _times(moved: float) -> str:
    """Return a distance relative to a norm as text, such as ``12% of`` or ``1.5 times``."""
    return f"{100 * moved:.2g}% of" if moved < 1 else f"{moved:.1f} times"


def _rows(seen: ZeroedElements) -> str:
    """Return the frozen rows as text: one row, a range, or a count if they are not consecutive."""
    rows = seen.rows
    if len(rows) == 1:
        return f"row {rows[0]}"
    if rows == tuple(range(rows[0], rows[-1] + 1)):
        return f"rows {rows[0]} to {rows[-1]}"
    return f"{len(rows)} of {seen.row_count} rows"


def _advice(by: str, rows: bool, whole: bool) -> str:
    """Return advice for parameters that move although their gradient is set to zero.

    :param by: "weight decay", "momentum", or empty if unknown or both.
    :param rows: whether whole rows are frozen.
    :param whole: whether all elements are frozen.
    """
    zero = {
        "weight decay": "Weight decay shrinks a weight whatever its gradient is",
        "momentum": "The running averages of the optimizer still hold the gradients of earlier steps",
    }.get(by, "Momentum and weight decay move a weight whatever its gradient is")
    if whole:
        return f"{zero}. To freeze a parameter, take it out of the optimizer, or set its .grad to None."
    if rows:
        return (
            f"{zero}. Keep the frozen rows in a tensor of their own that the optimizer does not hold, or write the old "
            "values back under torch.no_grad() after each step."
        )
    return (
        f"{zero}. Multiply the weights themselves by the mask under torch.no_grad() after each step, or apply the mask "
        "in the forward, as torch.nn.utils.prune does."
    )


def _zeroed_at(rows: Iterable[LedgerRow]) -> Iterator[Site]:
    """Yield the known lines that set gradients to zero in `rows`, the last of each row first."""
    return (e.site for row in rows for e in reversed(row.events) if e.what == events.ZEROED and e.site)


def _is_zeroed(row: LedgerRow) -> bool:
    """Return whether the script set a gradient to zero after the last backward call, before the optimizer stepped."""
    whats = [e.what for e in row.events]
    gave = max((i for i, what in enumerate(whats) if what in events.GIVING), default=-1)
    return whats[-1] == events.USED_ZERO and (row.frozen or (gave >= 0 and events.ZEROED in whats[gave + 1 :]))
