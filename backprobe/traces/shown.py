"""Sequences that display as a table, one row for each record: text at a prompt, HTML in a notebook."""

from __future__ import annotations

from typing import TypeVar

from . import tables

_T = TypeVar("_T")


class Shown:
    """A sequence of records that displays as a table, one row each; of a long one, the first and last rows."""

    def __repr__(self) -> str:
        return tables.table(self)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        return tables.html(self)  # type: ignore[arg-type]


class Rows(Shown, tuple[_T, ...]):
    """An immutable sequence of records in memory."""

    __slots__ = ()
