"""Statistics by layer over the steps of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from typing import Any

from ..basics.select import selector
from ..basics.text import html_table, number
from ..records import Measured
from ..records.statistics import OF


class Statistics(Sequence[Measured]):
    """Measurements step by step: ``statistics[-1]`` is the last measured step.

    ``steps`` lists the measured steps, ``curve("update_ratio", "fc.weight")`` follows one number, ``table("grad_norm",
    "encoder.*")`` several.

    :param read: returns the records, in the order of their steps; called once.
    """

    def __init__(self, read: Callable[[], Sequence[Measured]] = tuple) -> None:
        self._read = read

    @cached_property
    def _rows(self) -> Sequence[Measured]:
        """The records, read at the first use."""
        return self._read()

    @cached_property
    def _places(self) -> Mapping[tuple[str, ...], Mapping[str, int]]:
        """For each list of names that occurs, the position of each name in it."""
        return {names: {name: at for at, name in enumerate(names)} for names in {row.names for row in self._rows}}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: Any) -> Any:
        return self._rows[i]

    @property
    def steps(self) -> list[int]:
        """Return the measured steps."""
        return [row.step for row in self._rows]

    @property
    def quantities(self) -> list[str]:
        """Return the quantities measured for any layer."""
        return sorted({name.partition(OF)[0] for names in self._places for name in names})

    def names(self, quantity: str) -> list[str]:
        """Return the layers for which `quantity` was measured, in the order of the last steps."""
        found: dict[str, None] = {}
        for names in {row.names: None for row in reversed(self._rows)}:
            found |= {name.partition(OF)[2]: None for name in names if name.partition(OF)[0] == quantity}
        return list(found)

    def curve(self, quantity: str, name: str) -> list[tuple[int, float]]:
        """Return (step, value) for the steps in which `quantity` of `name` was measured."""
        key = f"{quantity}{OF}{name}"
        found = ((row, self._places[row.names].get(key)) for row in self._rows)
        return [(row.step, row.values[at]) for row, at in found if at is not None]

    def table(self, quantity: str, select: Any = "*") -> dict[str, list[tuple[int, float]]]:
        """Return curves of `quantity` by name, for the names that `select` matches: a glob, a regular expression, a
        predicate, or a list of these.
        """
        chosen = selector(select)
        return {name: self.curve(quantity, name) for name in self.names(quantity) if chosen(name, None)}

    def __iter__(self) -> Iterator[Measured]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<Statistics: {len(self)} steps, {', '.join(self.quantities) or 'nothing measured'}>"

    def _repr_html_(self) -> str:
        rows = []
        for quantity in self.quantities:
            curves = self.table(quantity)
            last = [(value, name) for name, curve in curves.items() for _, value in curve[-1:]]
            least, low = min(last, key=lambda one: (one[0] == one[0], one[0]))  # NaN, if there is one
            greatest, high = max(last, key=lambda one: (one[0] != one[0], one[0]))
            rows.append([quantity, str(len(curves)), number(least), low, number(greatest), high])
        head = ("quantity", "layers", "least at last", "of", "greatest at last", "of")
        return f"<p>{escape(repr(self))}</p>" + (html_table(head, rows, {1, 2, 4}) if rows else "")
