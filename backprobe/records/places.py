"""Where in the user's code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from ..text import without_controls
from .registry import record

_CELL = "Cell In["
#: How much source a run may keep: the functions of recorded lines, whole files, or no text of any line.
SOURCE_MODES = ("lines", "full", "none")
#: Stands in the source text of a run for a line that the run has not kept; no line of Python is so.
NOT_KEPT = "\N{HORIZONTAL ELLIPSIS}"


def cell(path: str) -> str | None:
    """A notebook's cell by its number, as IPython writes it, "Cell In[3]": what it compiled from that temporary file,
    or the name itself, as a stored run has it."""
    if path.startswith(_CELL):
        return path
    notebook = sys.modules.get("IPython")
    shell = notebook.get_ipython() if notebook is not None else None
    cells = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return f"{_CELL}{cells[path]}]" if path in cells else None


def lasting(path: str) -> str:
    """The name of a file that means something when this process is over: that of a cell is its number."""
    return cell(path) or path


def at_line(name: str, line: int) -> str:
    """``train.py:5``, or ``Cell In[3], line 5``."""
    return f"{name}, line {line}" if name.startswith(_CELL) else f"{name}:{line}"


@record
@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's code: the innermost frame outside torch, the standard library and installed packages."""

    file: str
    line: int
    function: str
    #: No part of which line it is: a run may keep it masked, or not at all.
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return without_controls(at_line(lasting(self.file), self.line))


def sites_in(value: Any) -> Iterator[Site]:
    """The source lines that records name, at any depth."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, Site):
            yield one
        elif is_dataclass(one) and not isinstance(one, type):
            stack += [getattr(one, field.name) for field in fields(one)]
        elif isinstance(one, Mapping):
            stack += one.values()
        elif isinstance(one, (tuple, list)):
            stack += one
