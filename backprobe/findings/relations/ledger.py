"""Derives from the ledger in which parameters the same thing happens in most periods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ... import thresholds
from ...records import Facts, LedgerOptimizer, LedgerRow, Site


@dataclass(frozen=True)
class Book:
    """The rows of the ledger of one optimizer."""

    optimizer: LedgerOptimizer
    rows: tuple[LedgerRow, ...]

    @property
    def names(self) -> frozenset[str]:
        """The parameters in the rows."""
        return frozenset(name for row in self.rows for name in row.parameters)

    def habits(
        self, predicate: Callable[[LedgerRow], bool], least: int = thresholds.LEDGER_MIN_PERIODS
    ) -> list[LedgerRow]:
        """Return the rows that satisfy `predicate`, with only those parameters for which this is the rule and not an
        exception.

        That is so from `least` periods on, if they are at least half of the parameter's periods since the first.
        """
        matching = [row for row in self.rows if predicate(row)]
        chosen = {name for row in matching for name in row.parameters if self._is_habit(name, matching, least)}
        rows = ((row, tuple(name for name in row.parameters if name in chosen)) for row in matching)
        return [replace(row, parameters=names) for row, names in rows if names]

    def _is_habit(self, name: str, matching: Sequence[LedgerRow], least: int) -> bool:
        """Return whether a parameter has enough periods in `matching`, also relative to its other periods since the
        first.
        """
        mine = [row for row in matching if name in row.parameters]
        count, first = sum(row.periods for row in mine), min(row.first for row in mine)
        others = (row for row in self.rows if name in row.parameters and row not in mine)
        rest = sum(min(row.periods, row.last - first + 1) for row in others if row.last >= first)
        return count >= least and count >= thresholds.LEDGER_MIN_SHARE * (count + rest)


def books(facts: Facts) -> Iterator[Book]:
    """Yield for each optimizer its rows of the ledger."""
    rows: dict[int, list[LedgerRow]] = {}
    for row in facts.of(LedgerRow):
        rows.setdefault(row.optimizer, []).append(row)
    for optimizer in facts.of(LedgerOptimizer):
        yield Book(optimizer, tuple(rows.get(optimizer.number, ())))


def names_in(rows: Sequence[LedgerRow]) -> tuple[str, ...]:
    """Return the names of the parameters of `rows`, each once."""
    return tuple(dict.fromkeys(name for row in rows for name in row.parameters))


def site_in(rows: Sequence[LedgerRow], *whats: str) -> Site | None:
    """Return the line of the first event of `rows` that is one of `whats` and has a line."""
    return next((e.site for row in rows for e in row.events if e.what in whats and e.site is not None), None)
