"""Report parts as text for a terminal of any width, with colour if the terminal has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TextIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from ..basics.terminal import console, hyperlink
from ..basics.text import without_controls
from .flow import Bars
from .parts import TIED, FindingPlace, Line, Part, Problem, Table

_TONES = {"plain": "", "quiet": "dim", "good": "green", "bad": "red", "head": "bold"}
_SEVERITY = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}


def write(parts: Sequence[Part], file: TextIO) -> None:
    """Write the parts of a report to `file`, formatted for its width, with colours and links if it is a terminal."""
    out = console(file)
    with out.capture() as text:
        for part in parts:
            if isinstance(part, Line):
                out.print(_name(part.text, _TONES[part.tone]))
            elif isinstance(part, Problem):
                _problem(out, part)
            elif isinstance(part, Bars):
                _bars(out, part, "#" if plain(file) else "\N{FULL BLOCK}")
            else:
                _table(out, part)
    # Lines have been broken: for searching and copying, replace no-break spaces, and drop spaces at the ends.
    lines = re.sub(r" +$", "", text.get().replace(TIED, " "), flags=re.MULTILINE)
    if out.is_terminal and file.isatty() and not out.is_dumb_terminal and not out.legacy_windows:
        lines = linked(lines, [place for part in parts if isinstance(part, Problem) for place in part.places])
    encoding = getattr(file, "encoding", None) or "utf-8"
    file.write(lines.encode(encoding, "replace").decode(encoding))


def linked(text: str, places: Sequence[FindingPlace]) -> str:
    """Return `text` with a hyperlink (OSC 8) on each ``file:line`` of `places` whose file is there.

    Not by rich, which draws the numbers of its links from Python's random generator, the script's.
    """
    for place in {place.where: place for place in places}.values():
        label, path = without_controls(place.where.partition(" in ")[0]), Path(place.file)
        if path.is_absolute() and path.is_file():
            # No look-around splits a path or a number: "a.py:1" is no part of "ba.py:12".
            found = re.compile(rf"(?<![\w./-]){re.escape(label)}(?!\d)")
            link = hyperlink(label, path.as_uri()).replace("\\", r"\\")
            text = found.sub(link, text)
    return text


def _name(text: str, style: str = "") -> Text:
    """Return `text` without line breaks and other control characters, so that a name cannot start a new line."""
    return Text(without_controls(text), style)


def _problem(out: Console, part: Problem) -> None:
    """Print a finding: kind, title, facts, places with their source, advice."""
    out.print()
    head = Text(f"{part.number}. ")
    head.append(part.kind, _SEVERITY[part.severity])
    head.append(f"  {part.severity}, {part.confidence}", "dim")
    out.print(head)
    out.print(Padding(Text(part.title), (0, 0, 0, 3)))
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in part.facts:
        grid.add_row(_name(name), Text(value))
    for place in part.places:
        grid.add_row(_name(place.role), _name(place.where))
        if place.context:
            grid.add_row("", _context(place))
        elif place.text:
            grid.add_row("", _name("  " + place.text, "cyan"))
    out.print(Padding(grid, (0, 0, 0, 3)))
    out.print(Padding(Text(part.advice), (0, 0, 0, 3)))
    out.print()


def _context(place: FindingPlace) -> RichTable:
    """Return numbered source lines; the line of the finding is marked."""
    lines = RichTable.grid(padding=(0, 1, 0, 0))
    for _ in range(2):
        lines.add_column(no_wrap=True, justify="right")
    lines.add_column(overflow="fold")
    for n, text in place.context:
        meant = n == place.line
        style = "cyan" if meant else "dim"
        lines.add_row(Text(">" if meant else " "), Text(f"{n}", style="dim"), _name(text, style))
    return lines


def plain(file: TextIO) -> bool:
    """Return whether `file` can show only ASCII, judged by its encoding."""
    try:
        "\N{FULL BLOCK}".encode(getattr(file, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def _bars(out: Console, part: Bars, sign: str) -> None:
    """Print a bar chart, one row for each bar; labels that are too long lose their start.

    :param sign: the character that bars are made of.
    """
    labels = min(max((len(r.label) for r in part.rows), default=0), out.width // 2)
    texts = max((len(r.text) for r in part.rows), default=0)
    room = max(out.width - labels - texts - 6, 8)
    for row in part.rows:
        label = row.label if len(row.label) <= labels else "..." + row.label[3 - labels :]
        line = _name(f"{label:<{labels}}  ")
        line.append(f"{row.text:>{texts}}  ", "" if row.length is not None else "yellow")
        note = f" {row.note}" if row.note else ""
        if row.length is not None:
            width = max(round(row.length * (room - len(note))), 1)
            line.append(sign * width, "cyan")
        line.append(note, "yellow")
        out.print(line, no_wrap=True, overflow="ellipsis")
    if part.scale:
        out.print(Text(part.scale, style="dim"))


def _table(out: Console, part: Table) -> None:
    """Print a table; all columns but the first are right-aligned, unless they hold words."""
    table = RichTable(box=None, padding=(0, 2, 0, 0), header_style="dim")
    last = len(part.columns) - 1
    for i, title in enumerate(part.columns):
        side: Literal["left", "right"] = "left" if i == 0 or part.words else "right"
        table.add_column(title, justify=side, overflow="fold", no_wrap=0 < i < last, min_width=len(title))
    for row in part.rows:
        table.add_row(*map(_name, row))
    out.print(table)
