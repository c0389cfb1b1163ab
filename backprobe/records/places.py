"""Where in the user's code."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from .registry import record

_CELL = "Cell In["


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
    text: str = ""

    def __str__(self) -> str:
        return at_line(lasting(self.file), self.line)
