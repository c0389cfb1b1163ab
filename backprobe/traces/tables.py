"""Tables of records, as text at a prompt and as HTML in a notebook: one row for each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ..basics.text import counted, few, html_table, number, shape, text_table
from ..records import BackwardCall, GradStat, NodeRun, Site
from ..records.places import at_line, short_path

#: Maximum number of rows in a table (half from the start, half from the end), and of characters in a cell.
MAX_ROWS, MAX_CELL_CHARACTERS = 40, 60

#: A column of a table: its title, and a function that returns the value for a record.
Column = tuple[str, Callable[[Any], object]]


def table(records: Sequence[object]) -> str:
    """Return `records` as a text table, one row for each; a long one without its middle."""
    head, body = _table(records)
    return text_table(head, body, _right(body)) if body else "[]"


def html(records: Sequence[object]) -> str:
    """Return `records` as an HTML table, one row for each; a long one without its middle."""
    head, body = _table(records)
    return html_table(head, body, _right(body)) if body else "<p>none</p>"


def record(one: object) -> str:
    """Return any record as HTML: a row for each of its fields that has a value."""
    columns = _columns(one)
    named = [(title, _cell(value(one))) for title, value in columns]
    return html_table(["", type(one).__name__], [row for row in named if row[1]])


def _table(records: Sequence[object]) -> tuple[list[str], list[list[str]]]:
    """Return titles and cells. Empty columns are left out, and rows in the middle if there are many."""
    count = len(records)
    if not count:
        return [], []
    places = range(count) if count <= MAX_ROWS else [*range(MAX_ROWS // 2), *range(count - MAX_ROWS // 2, count)]
    chosen = [records[i] for i in places]
    columns = _columns(chosen[0])
    body = [[_cell(value(one)) for _, value in columns] for one in chosen]
    kept = [i for i in range(len(columns)) if any(row[i] for row in body)]
    rows = [[row[i] for i in kept] for row in body]
    if count > MAX_ROWS:
        rows.insert(MAX_ROWS // 2, [f"... {count - MAX_ROWS:,} more ...", *[""] * (len(kept) - 1)])
    return [columns[i][0] for i in kept], rows


def _right(body: Sequence[Sequence[str]]) -> set[int]:
    """Return the indices of columns that hold only numbers, which are aligned on the right."""
    return {i for i in range(len(body[0])) if all(_is_number(row[i]) for row in body if row[i] and row[i][:3] != "...")}


def _is_number(text: str) -> bool:
    """Return whether a cell is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _columns(record: object) -> Sequence[Column]:
    """Return the columns for a record: its ``COLUMNS``, else those in ``_COLUMNS``, else its fields."""
    return getattr(record, "COLUMNS", None) or _COLUMNS.get(type(record)) or _fields(record)


def _fields(record: object) -> Sequence[Column]:
    """Return a column for each public field of a dataclass; for other objects one column with their text."""
    if not is_dataclass(record):
        return [("", str)]
    return [(one.name.replace("_", " "), _getter(one.name)) for one in fields(record) if not one.name.startswith("_")]


def _getter(name: str) -> Callable[[Any], object]:
    """Return a function that returns the attribute `name` of a record."""
    return lambda record: getattr(record, name)


def _cell(value: object) -> str:
    """Return a value as the text of a cell, cut to ``MAX_CELL_CHARACTERS``; empty for ``None``, false and
    empty values.
    """
    if value is None or value is False or (isinstance(value, (str, Sequence, Mapping)) and not value):
        return ""
    if value is True:
        return "yes"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Site):
        return at_line(short_path(value.file), value.line)
    if isinstance(value, tuple) and all(isinstance(one, int) for one in value):
        return shape(value)
    if isinstance(value, (str, int)):
        text = str(value)
    elif isinstance(value, Sequence):
        plain = all(isinstance(one, (str, int, tuple)) for one in value)
        text = few([shape(one) if isinstance(one, tuple) else str(one) for one in value]) if plain else f"{len(value)}"
    else:
        text = str(value)
    return text if len(text) <= MAX_CELL_CHARACTERS else f"{text[: MAX_CELL_CHARACTERS - 3]}..."


def _most(stats: Iterable[GradStat | None]) -> float | None:
    """Return the largest known norm; ``None`` if none is known."""
    return max((stat.norm for stat in stats if stat is not None and stat.norm is not None), default=None)


def _roots(call: BackwardCall) -> str:
    """Return the values of a call's roots as text, or their number if no value is known."""
    values = [root.value for root in call.roots if root.value is not None]
    return few([number(value) for value in values]) or counted(len(call.roots), "root")


_COLUMNS: dict[type, Sequence[Column]] = {
    BackwardCall: (
        ("backward call", lambda one: one.index),
        ("step", lambda one: one.step),
        ("from", _roots),
        ("line", lambda one: one.site),
        ("nodes", lambda one: len(one.nodes)),
        ("ms", lambda one: 1e3 * one.seconds),
        ("raised", lambda one: one.raised.type if one.raised else None),
    ),
    NodeRun: (
        ("order", lambda one: one.order),
        ("node", lambda one: one.name),
        ("module", lambda one: one.module),
        ("line", lambda one: one.site),
        ("norm in", lambda one: _most(one.grad_outputs)),
        ("norm out", lambda one: _most(one.grad_inputs)),
        ("ms", lambda one: None if one.seconds is None else 1e3 * one.seconds),
    ),
}
