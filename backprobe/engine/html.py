"""Notebook output of stops and results: coloured text and tables. Everything is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .show import Line

_CSS = {
    "bold": "font-weight:bold", "dim": "opacity:.6", "red": "color:#c0392b", "green": "color:#1e8449",
    "cyan": "color:#117a8b", "magenta": "color:#8e44ad", "yellow": "color:#9a7d0a",
}  # fmt: skip


def text(lines: Sequence[Line]) -> str:
    """Return styled lines as HTML."""
    rows = ("".join(_span(part, style) for part, style in line) for line in lines)
    return "<pre>" + "\n".join(rows) + "</pre>"


def _span(part: str, style: str) -> str:
    """Return a piece of styled text as HTML."""
    css = ";".join(_CSS[word] for word in style.split() if word in _CSS)
    return f'<span style="{css}">{escape(part)}</span>' if css else escape(part)


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table; ``None`` is an empty cell."""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    """Return a table cell as HTML; numbers with three digits, ``None`` as an empty cell."""
    shown = "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    return f"<td>{escape(shown)}</td>"
