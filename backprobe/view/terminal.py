"""Parts as text on a terminal: at any width, without colour where there is none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from .parts import TIED, Line, Part, Problem, Table

_TONES = {"plain": "", "quiet": "dim", "good": "green", "head": "bold"}
_SEVERITY = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}


def console(file: TextIO) -> Console:
    return Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=False)


def write(parts: Sequence[Part], file: TextIO) -> None:
    out = console(file)
    with out.capture() as text:
        for part in parts:
            if isinstance(part, Line):
                out.print(Text(part.text, style=_TONES[part.tone]))
            elif isinstance(part, Problem):
                _problem(out, part)
            else:
                _table(out, part)
    # Lines were broken where they may be: a reader who searches or copies gets plain spaces, and none at the end.
    file.write(re.sub(r" +$", "", text.get().replace(TIED, " "), flags=re.MULTILINE))


def _problem(out: Console, part: Problem) -> None:
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
        grid.add_row(name, Text(value))
    for place in part.places:
        grid.add_row(place.role, Text(place.where))
        if place.text:
            grid.add_row("", Text("  " + place.text, style="cyan"))
    out.print(Padding(grid, (0, 0, 0, 3)))
    out.print(Padding(Text(part.advice), (0, 0, 0, 3)))
    out.print()


def _table(out: Console, part: Table) -> None:
    table = RichTable(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for i, title in enumerate(part.columns):
        table.add_column(title, justify="left" if i == 0 else "right", overflow="fold", no_wrap=i > 0)
    for row in part.rows:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)
