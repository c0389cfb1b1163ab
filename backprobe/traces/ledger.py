"""The ledger of a parameter: what gave it a gradient, what was done to that, and what moved the weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..basics.text import counted, few, html_table, text_table
from ..records import Facts, LedgerEvent, LedgerOptimizer, LedgerRow, Site
from ..records import ledger as events
from ..records.places import short_path

#: The events that are the optimizer's step, with their words.
STEPS = {
    events.USED: "{} stepped with the gradient",
    events.USED_ZERO: "{} stepped with zeros",
    events.USED_AGAIN: "{} stepped with the gradient of its last step",
    events.SKIPPED: "{} stepped without a gradient",
}
HEAD = ("steps", "times", "what happened", "line")


@dataclass(frozen=True)
class Ledger:
    """The ledger of one parameter, or of all parameters of a module.

    Gradients and weights are accounted for in the first steps and in some rows of later ones. A period begins when the
    optimizer has stepped and ends when it has stepped again; periods in which the same happened are one row.

    :ivar name: the parameter or module; ``rows``: its rows, by first step; ``optimizers``: by number.
    """

    name: str
    rows: Sequence[LedgerRow]
    optimizers: Mapping[int, LedgerOptimizer]

    def __repr__(self) -> str:
        if not self.rows:
            return f"{self.name}: no step of an optimizer that holds it was accounted for"
        parts = [f"{names}\n{text_table(HEAD, self._table(rows), {1})}" for names, rows in self._groups()]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{names}</p>{html_table(HEAD, self._table(rows), {1})}" for names, rows in self._groups())

    def _groups(self) -> Iterator[tuple[str, list[LedgerRow]]]:
        """Yield the names of parameters, and their rows."""
        groups: dict[tuple[int, tuple[str, ...]], list[LedgerRow]] = {}
        for row in self.rows:
            groups.setdefault((row.optimizer, row.parameters), []).append(row)
        for (number, names), rows in groups.items():
            held = self.optimizers[number]
            made = f" ({_place(held.made)})" if held.made is not None else ""
            yield f"{few(names)}, in {held.name}{made}", rows

    def _table(self, rows: Sequence[LedgerRow]) -> list[tuple[str, ...]]:
        table: list[tuple[str, ...]] = []
        for row in rows:
            steps = f"{row.first}" if row.first == row.last else f"{row.first} to {row.last}"
            for i, event in enumerate(row.events):
                head = (steps, f"{row.periods:,}") if i == 0 else ("", "")
                table.append((*head, *self._line(row, event)))
        return table

    def _line(self, row: LedgerRow, event: LedgerEvent) -> tuple[str, str]:
        text, site = event_line(row, event, self.optimizers)
        if event.what in STEPS and row.moved + row.kept:
            text += f": {_movement(row)}"
        return text, _place(site)


def event_line(
    row: LedgerRow, event: LedgerEvent, optimizers: Mapping[int, LedgerOptimizer]
) -> tuple[str, Site | None]:
    """Return what happened in an event of `row`, as text, and its line if that is known."""
    held = optimizers[row.optimizer]
    if event.what in STEPS:
        return STEPS[event.what].format(held.name), held.stepped
    text = event.what + (f", {counted(event.times, 'time')}" if event.times > 1 else "")
    others = [optimizers[n].name for n in event.optimizers if n in optimizers]
    if event.what in (events.OTHER_STEP, events.SHARED_STEP) and others:
        text += f" ({', '.join(others)})"
    return text, event.site


def ledger_of(facts: Facts, name: str) -> Ledger:
    """Return the ledger of the parameter `name`, or of the parameters of the module `name`."""
    rows = []
    for row in facts.of(LedgerRow):
        names = tuple(n for n in row.parameters if n == name or n.startswith(f"{name}.") or not name)
        if names:
            rows.append(replace(row, parameters=names))
    rows.sort(key=lambda row: (row.optimizer, row.first))
    return Ledger(name, rows, {one.number: one for one in facts.of(LedgerOptimizer)})


def _movement(row: LedgerRow) -> str:
    """Say how many steps moved the weight, of those in which its values were compared."""
    if not row.kept:
        return "it moved"
    return f"it moved in {row.moved:,} of {row.moved + row.kept:,}" if row.moved else "it stayed as it was"


def _place(site: Site | None) -> str:
    return f"{short_path(site.file)}:{site.line}" if site is not None else ""
