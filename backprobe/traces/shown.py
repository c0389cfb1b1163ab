"""Sequences that show what is in them: at a prompt as text, in a notebook as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ..records import Finding

_T = TypeVar("_T")


class Shown:
    """A sequence of records, shown as a table: a row each, of many the first and the last."""

    def __repr__(self) -> str:
        from ..view.cells import table

        return table(self)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        from ..view.cells import html

        return html(self)  # type: ignore[arg-type]


class Rows(Shown, tuple[_T, ...]):
    """Records in memory that do not change."""

    __slots__ = ()


class Findings(list[Finding]):
    """Findings as the terminal tells them, with their lines.

    :param sources: gives the source text that was recorded with them, by file.
    """

    def __init__(self, findings: Iterable[Finding] = (), sources: Callable[[], Mapping[str, str]] = dict) -> None:
        super().__init__(findings)
        self._sources = sources

    def __reduce__(self) -> tuple[type[Findings], tuple[list[Finding]]]:
        return Findings, ([*self],)

    def __repr__(self) -> str:
        from ..view.cells import told

        return told(self, self._sources()) if self else "[]"

    def _repr_html_(self) -> str:
        from ..view.cells import told_html

        return told_html(self, self._sources())
