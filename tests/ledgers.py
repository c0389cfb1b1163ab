"""Hand-written ledgers. No torch."""

from __future__ import annotations

from typing import Any

from handmade import at, traced
from learning import STEP

from backprobe import Trace
from backprobe.records import LedgerEvent, LedgerOptimizer, LedgerRow
from backprobe.records import ledger as events

MADE_LINE, STEPPED_LINE = 5, 33


def event(what: str, line: int | None = None, *optimizers: int, times: int = 1) -> LedgerEvent:
    return LedgerEvent(what, at(line) if line is not None else None, times, optimizers)


def gave(line: int, *optimizers: int, added: bool = False, times: int = 1) -> LedgerEvent:
    return event(events.ADDED if added else events.GRADIENT, line, *(optimizers or (0,)), times=times)


def row(*what: LedgerEvent, names: tuple[str, ...] = ("a.weight",), periods: int = 5, **more: Any) -> LedgerRow:
    details = {"optimizer": 0, "first": 1, "last": 9, "moved": periods} | more
    return LedgerRow(names, events=what, periods=periods, **details)


def optimizer(number: int = 0, name: str = "SGD", **more: Any) -> LedgerOptimizer:
    return LedgerOptimizer(number, name, at(MADE_LINE), at(STEPPED_LINE), 4, 12, **more)


def ledger(*rows: LedgerRow, **more: Any) -> Trace:
    """A trace whose ledger has one optimizer with these rows."""
    return traced(STEP, seen=[optimizer(**more), *rows])


USED, ZEROS, USED_AGAIN, SKIPPED = (
    event(e) for e in (events.USED, events.USED_ZERO, events.USED_AGAIN, events.SKIPPED)
)
CLEARED, ZEROED = event(events.CLEARED, 31), event(events.ZEROED, 35)
