"""Display of findings, steps, calls and other records in notebook cells and interactive prompts."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

from ..records import BackwardCall, Finding, GradStat, NodeRun, Site
from ..records.places import at_line
from ..text import counted, few, html_table, number, shape, text_table
from ..traces import Trace, TracedStep
from ..traces.part import Part
from ..traces.statistics import Statistics
from .parts import FindingPlace, Line, Problem, Table, problem, report, short
from .terminal import write

#: Maximum number of rows in a table (half from the start, half from the end), and of characters in a cell.
MAX_ROWS, MAX_CELL_CHARACTERS = 40, 60
_COLOURS = {"error": "#c0392b", "warning": "#9a7d0a", "info": "#117a8b"}

_TONES = {"head": "font-weight:bold", "good": "color:#1e8449", "bad": "color:#c0392b", "quiet": "opacity:.6"}

#: A column of a table: its title, and a function that returns the value for a record.
Column = tuple[str, Callable[[Any], object]]


def table(records: Sequence[Any]) -> str:
    """Return `records` as a text table, one row for each."""
    head, body = _table(records)
    return text_table(head, body, _right(body)) if body else "[]"


def html(records: Sequence[Any]) -> str:
    """Return `records` as an HTML table."""
    head, body = _table(records)
    return html_table(head, body, _right(body)) if body else "<p>none</p>"


def findings_text(findings: Sequence[Finding], sources: Mapping[str, str] | None = None) -> str:
    """Return findings as the terminal shows them. `sources`: the source text that was recorded with them."""
    out = io.StringIO()
    write([problem(i, finding, sources) for i, finding in enumerate(findings, 1)], out)
    return out.getvalue().strip("\n")


def findings_html(findings: Sequence[Finding], sources: Mapping[str, str] | None = None) -> str:
    """Return findings as HTML, with their source lines."""
    shown = (_problem(problem(i, finding, sources)) for i, finding in enumerate(findings, 1))
    return "".join(shown) or "<p>Nothing was found.</p>"


def outcome(trace: Trace) -> str:
    """Return the report of `trace` as a terminal shows it at the end of a run."""
    out = io.StringIO()
    write(report(trace), out)
    return out.getvalue().strip("\n")


def outcome_html(trace: Trace) -> str:
    """Return the report of `trace` as HTML."""
    shown = []
    for part in report(trace):
        if isinstance(part, Problem):
            shown.append(_problem(part))
        elif isinstance(part, Table):
            shown.append(html_table(part.columns, part.rows))
        elif isinstance(part, Line):
            css = _TONES.get(part.tone)
            shown.append(f"<div{f' style={css!r}' if css else ''}>{escape(part.text)}</div>")
    return "".join(shown)


def finding(one: Finding) -> str:
    """Return a finding as HTML."""
    return _problem(problem(1, one))


def record(one: Any) -> str:
    """Return any record as HTML: a row for each of its fields that has a value."""
    columns = _COLUMNS.get(type(one)) or _fields(one)
    named = [(title, _cell(value(one))) for title, value in columns]
    return html_table(["", type(one).__name__], [row for row in named if row[1]])


def part(one: Part) -> str:
    """Return a module or parameter as HTML: its nodes."""
    return f"<p>{escape(repr(one))}</p>" + html(one.nodes) * bool(one.nodes)


def statistics(one: Statistics) -> str:
    """Return statistics as HTML: a row for each quantity, over all layers."""
    rows = []
    for quantity in one.quantities:
        curves = one.table(quantity)
        last = [(value, name) for name, curve in curves.items() for _, value in curve[-1:]]
        least, low = min(last, key=lambda one: (one[0] == one[0], one[0]))  # NaN, if there is one
        greatest, high = max(last, key=lambda one: (one[0] != one[0], one[0]))
        rows.append([quantity, str(len(curves)), number(least), low, number(greatest), high])
    head = ("quantity", "layers", "least at last", "of", "greatest at last", "of")
    return f"<p>{escape(repr(one))}</p>" + (html_table(head, rows, {1, 2, 4}) if rows else "")


def step(one: TracedStep) -> str:
    """Return a step as HTML: its backward calls and the norms of its parameters."""
    title = f"<p>{escape(repr(one))}</p>"
    return title + html(one.backwards) * bool(one.backwards) + html([*one.parameters.values()]) * bool(one.parameters)


def _problem(part: Problem) -> str:
    css = f"color:{_COLOURS[part.severity]};font-weight:bold"
    head = (
        f'<span style="{css}">{escape(part.kind)}</span> <small>{escape(f"{part.severity}, {part.confidence}")}</small>'
    )
    facts = [f"<tr>{_fact(name)}<td {_LEFT}>{escape(value)}</td></tr>" for name, value in part.facts]
    places = [f"<tr>{_fact(at.role)}<td {_LEFT}>{escape(at.where)}{_lines(at)}</td></tr>" for at in part.places]
    return (
        f'<div style="margin:.6em 0"><div>{part.number}. {head}</div><div>{escape(part.title)}</div>'
        f"<table>{''.join([*facts, *places])}</table><div>{escape(part.advice)}</div></div>"
    )


_LEFT = 'style="text-align:left;vertical-align:top"'


def _fact(name: str) -> str:
    return f'<td style="text-align:left;vertical-align:top;opacity:.6">{escape(name)}</td>'


def _lines(place: FindingPlace) -> str:
    rows = [
        f"<b>&gt; {n:>4} {escape(text)}</b>" if n == place.line else f"  {n:>4} {escape(text)}"
        for n, text in place.context
    ]
    return "<pre>" + "\n".join(rows or [escape(place.text)]) + "</pre>" if rows or place.text else ""


def _table(records: Sequence[Any]) -> tuple[list[str], list[list[str]]]:
    """Return titles and cells. Empty columns are left out, and rows in the middle if there are many."""
    count = len(records)
    if not count:
        return [], []
    places = range(count) if count <= MAX_ROWS else [*range(MAX_ROWS // 2), *range(count - MAX_ROWS // 2, count)]
    chosen = [records[i] for i in places]
    columns = _COLUMNS.get(type(chosen[0])) or _fields(chosen[0])
    body = [[_cell(value(one)) for _, value in columns] for one in chosen]
    kept = [i for i in range(len(columns)) if any(row[i] for row in body)]
    rows = [[row[i] for i in kept] for row in body]
    if count > MAX_ROWS:
        rows.insert(MAX_ROWS // 2, [f"... {count - MAX_ROWS:,} more ...", *[""] * (len(kept) - 1)])
    return [columns[i][0] for i in kept], rows


def _right(body: Sequence[Sequence[str]]) -> set[int]:
    """Return the indices of columns that hold numbers."""
    return {i for i in range(len(body[0])) if all(_is_number(row[i]) for row in body if row[i] and row[i][:3] != "...")}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _fields(record: Any) -> Sequence[Column]:
    if not is_dataclass(record):
        return [("", str)]
    return [(one.name.replace("_", " "), _getter(one.name)) for one in fields(record) if not one.name.startswith("_")]


def _getter(name: str) -> Callable[[Any], object]:
    return lambda record: getattr(record, name)


def _cell(value: object) -> str:
    if value is None or value is False or (isinstance(value, (str, Sequence, Mapping)) and not value):
        return ""
    if value is True:
        return "yes"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Site):
        return at_line(short(value.file), value.line)
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
    """Return the largest norm."""
    return max((stat.norm for stat in stats if stat is not None and stat.norm is not None), default=None)


def _roots(call: BackwardCall) -> str:
    values = [root.value for root in call.roots if root.value is not None]
    return few([number(value) for value in values]) or counted(len(call.roots), "root")


_COLUMNS: dict[type, Sequence[Column]] = {
    TracedStep: (
        ("step", lambda one: one.index),
        ("loss", lambda one: one.loss),
        ("ms", lambda one: 1e3 * one.seconds),
        ("recorded backward calls", lambda one: len(one.backwards)),
        ("nodes", lambda one: sum(len(call.nodes) for call in one.backwards)),
        ("raised", lambda one: next((call.raised.type for call in one.backwards if call.raised), None)),
    ),
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
