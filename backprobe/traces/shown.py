"""Sequences that display as text at a prompt and as a table in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ..records import Finding

_T = TypeVar("_T")


class Shown:
    """A sequence of records that displays as a table, one row each; of a long one, the first and last rows."""

    def __repr__(self) -> str:
        from ..view.cells import table

        return table(self)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        from ..view.cells import html

        return html(self)  # type: ignore[arg-type]


class Rows(Shown, tuple[_T, ...]):
    """An immutable sequence of records in memory."""

    __slots__ = ()


class Findings(list[Finding]):
    """Findings that display as in the terminal, with their source lines.

    :param sources: returns the recorded source text, by file.
    """

    def __init__(self, findings: Iterable[Finding] = (), sources: Callable[[], Mapping[str, str]] = dict) -> None:
        super().__init__(findings)
        self._sources = sources

    def __reduce__(self) -> tuple[type[Findings], tuple[list[Finding]]]:
        return Findings, ([*self],)

    def __repr__(self) -> str:
        from ..view.cells import findings_text

        return findings_text(self, self._sources()) if self else "[]"

    def _repr_html_(self) -> str:
        from ..view.cells import findings_html

        return findings_html(self, self._sources())
