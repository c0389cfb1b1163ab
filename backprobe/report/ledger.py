"""The ledger as tables of the page: the account of each parameter that an optimizer holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice

from ..records import LedgerBuffer, LedgerChanges, LedgerEvent, LedgerOptimizer, LedgerRow
from ..records import ledger as events
from ..traces import Trace
from ..traces.ledger import STEPS, buffer_events, buffer_title, change_cells, event_line, stayed, why_stayed
from .columns import column
from .tables import Parameters, Sites

#: Maximum number of rows in a page, and in the account of one parameter; above it, the rows of the most periods stay,
#: those of parameters in findings before others.
MAX_ROWS, MAX_ROWS_EACH = 2000, 60
#: Maximum number of parameters with changes, and of groups of buffers, in a page.
MAX_CHANGED, MAX_BUFFERS = 500, 500
#: Event -> the sign that the page shows; all others are steps of the optimizer.
SIGNS = {
    **dict.fromkeys(events.GIVING, "gradient"),
    **dict.fromkeys(events.CLEARING, "clear"),
    **dict.fromkeys((events.SCALED, events.REPLACED), "write"),
    **dict.fromkeys((events.OTHER_STEP, events.SHARED_STEP), "other"),
    **dict.fromkeys((events.WRITTEN, events.MOVED_IN_STEP, events.RESTORED), "weight"),
}


def ledger(trace: Trace, parameters: Parameters, sites: Sites) -> dict[str, object] | None:
    """Return the ledgers of all parameters as a document; ``None`` if the run has none.

    Parameters with the same rows share an account, and rows share their events.
    """
    held = {one.number: one for one in trace.facts.of(LedgerOptimizer)}
    rows = [row for row in trace.facts.of(LedgerRow) if row.optimizer in held]
    chosen, cut = _choose(rows, parameters, {name for finding in trace.findings for name in finding.parameters})
    if not chosen:
        return None
    shown = sorted({at for mine in chosen.values() for at in mine}, key=lambda at: _place(rows[at]))
    numbers = {at: number for number, at in enumerate(shown)}
    optimizers = {number: at for at, number in enumerate(dict.fromkeys(rows[at].optimizer for at in shown))}
    table = _Events(held, sites)
    accounts: dict[tuple[tuple[int, ...], int], int] = {}
    of = [-1] * len(parameters.names)
    for name, mine in chosen.items():
        account = tuple(sorted(numbers[at] for at in mine)), cut.get(name, 0)
        of[parameters.of(name)] = accounts.setdefault(account, len(accounts))
    return {
        "optimizers": [_optimizer(held[number], sites) for number in optimizers],
        "rows": [_row(rows[at], optimizers, table) for at in shown],
        "events": table.rows,
        "accounts": [{"rows": list(mine), "cut": count} for mine, count in accounts],
        "of": column("i", of),
        "changes": list(_changes(trace, parameters, optimizers)),
        "buffers": [_buffer(one, sites) for one in islice(trace.facts.of(LedgerBuffer), MAX_BUFFERS)],
    }


class _Events:
    """The events of rows, each stored once and referred to by its number."""

    def __init__(self, held: Mapping[int, LedgerOptimizer], sites: Sites) -> None:
        self._held, self._sites = held, sites
        self._numbers: dict[tuple[str, str, int], int] = {}

    def of(self, row: LedgerRow, event: LedgerEvent) -> int:
        """Return the number of an event, adding it if it is new."""
        text, site = event_line(row, event, self._held)
        sign = "step" if event.what in STEPS else SIGNS.get(event.what, "other")
        return self._numbers.setdefault((sign, text, self._sites.of(site)), len(self._numbers))

    @property
    def rows(self) -> list[dict[str, object]]:
        """The events as the page shows them: kind of sign, text, and line."""
        return [{"sign": sign, "text": text, "site": site} for sign, text, site in self._numbers]


def _choose(
    rows: Sequence[LedgerRow], parameters: Parameters, found: Set[str]
) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Return for each parameter the positions of its rows that are in the page, and how many of its rows are left out.

    :param found: the parameters of findings, whose rows are chosen first.
    """
    chosen: dict[str, list[int]] = {}
    cut: dict[str, int] = {}
    in_page: set[int] = set()
    for at in sorted(range(len(rows)), key=lambda at: (found.isdisjoint(rows[at].parameters), -rows[at].periods, at)):
        fits = len(in_page) < MAX_ROWS
        for name in rows[at].parameters:
            if parameters.of(name) < 0:
                continue
            mine = chosen.setdefault(name, [])
            if fits and len(mine) < MAX_ROWS_EACH:
                mine.append(at)
                in_page.add(at)
            else:
                cut[name] = cut.get(name, 0) + 1
    return chosen, cut


def _changes(trace: Trace, parameters: Parameters, optimizers: Mapping[int, int]) -> Iterator[dict[str, object]]:
    """Yield what steps changed in the parameters of the page, for the first of them."""
    known = [one for one in trace.facts.of(LedgerChanges) if one.optimizer in optimizers]
    for one in [one for one in known if parameters.of(one.parameter) >= 0][:MAX_CHANGED]:
        yield {
            "parameter": parameters.of(one.parameter),
            "optimizer": optimizers[one.optimizer],
            "split": any(change.gradient is not None for change in one.changes),
            "rows": [list(change_cells(change)) for change in one.changes],
        }


def _buffer(one: LedgerBuffer, sites: Sites) -> dict[str, object]:
    """Return the table of a group of buffers."""
    rows = [[steps, times, what, sites.of(site)] for steps, times, what, site in buffer_events(one)]
    return {"module": one.names[0].rpartition(".")[0], "title": buffer_title(one), "rows": rows}


def _place(row: LedgerRow) -> tuple[int, int, int]:
    """Sort key of rows: optimizer, first step, last step."""
    return row.optimizer, row.first, row.last


def _optimizer(one: LedgerOptimizer, sites: Sites) -> dict[str, object]:
    """Return the facts about an optimizer: name, line, and how much of its ledger was omitted."""
    return {"name": one.name, "made": sites.of(one.made), "omitted": one.omitted}


def _row(row: LedgerRow, optimizers: Mapping[int, int], table: _Events) -> dict[str, object]:
    """Return a row of the ledger as plain data, with the numbers of its optimizer and events."""
    return {
        "optimizer": optimizers[row.optimizer],
        "events": [table.of(row, event) for event in row.events],
        **{"periods": row.periods, "first": row.first, "last": row.last},
        **{"moved": row.moved, "kept": stayed(row), "frozen": row.frozen},
        "why": why_stayed(row).lstrip(",; "),
    }
