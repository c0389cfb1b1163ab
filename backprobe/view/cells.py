"""Display of findings and of the report of a run in notebook cells and interactive prompts."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from html import escape

from ..basics.text import html_table
from ..records import Finding
from ..traces import Trace
from .parts import FindingPlace, Line, Problem, Table, problem, report
from .terminal import write

_COLOURS = {"error": "#c0392b", "warning": "#9a7d0a", "info": "#117a8b"}

_TONES = {"head": "font-weight:bold", "good": "color:#1e8449", "bad": "color:#c0392b", "quiet": "opacity:.6"}


def findings_text(findings: Sequence[Finding], sources: Mapping[str, str] | None = None) -> str:
    """Return findings as the terminal shows them. `sources`: the source text that was recorded with them."""
    out = io.StringIO()
    write([problem(i, finding, sources) for i, finding in enumerate(findings, 1)], out)
    return out.getvalue().strip("\n")


def findings_html(findings: Sequence[Finding], sources: Mapping[str, str] | None = None) -> str:
    """Return findings as HTML, with their source lines."""
    shown = (_problem(problem(i, finding, sources)) for i, finding in enumerate(findings, 1))
    return "".join(shown) or "<p>No findings.</p>"


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


def _problem(part: Problem) -> str:
    """Return a finding as HTML: kind, severity, title, facts, source lines and advice."""
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
    """Return the HTML cell with the name of a fact."""
    return f'<td style="text-align:left;vertical-align:top;opacity:.6">{escape(name)}</td>'


def _lines(place: FindingPlace) -> str:
    """Return the source lines of a place as HTML, the line itself marked."""
    rows = [
        f"<b>&gt; {n:>4} {escape(text)}</b>" if n == place.line else f"  {n:>4} {escape(text)}"
        for n, text in place.context
    ]
    return "<pre>" + "\n".join(rows or [escape(place.text)]) + "</pre>" if rows or place.text else ""
