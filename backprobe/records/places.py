"""Source lines of the user's code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass

from ..basics.privacy import without_home
from ..basics.text import without_controls
from .registry import record

_CELL = "Cell In["
#: How much source a run may store: the functions of recorded lines, whole files, or no source text.
SOURCE_MODES = ("lines", "full", "none")
#: Marks, in the stored source text of a run, a line that was not stored; it is no valid line of Python.
NOT_KEPT = "\N{HORIZONTAL ELLIPSIS}"


def cell(path: str) -> str | None:
    """Return a notebook cell's name as IPython writes it, "Cell In[3]"; ``None`` if `path` is no cell.

    `path` is the temporary file that IPython compiled the cell from, or the name itself, as in a stored run.
    """
    if path.startswith(_CELL):
        return path
    notebook = sys.modules.get("IPython")
    shell = notebook.get_ipython() if notebook is not None else None
    cells = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return f"{_CELL}{cells[path]}]" if path in cells else None


def lasting(path: str) -> str:
    """Return a file name that stays meaningful after this process: that of a notebook cell is its number."""
    return cell(path) or path


def at_line(name: str, line: int) -> str:
    """Format a line: ``train.py:5``, or ``Cell In[3], line 5``."""
    return f"{name}, line {line}" if name.startswith(_CELL) else f"{name}:{line}"


def short_path(path: str) -> str:
    """Return `path` relative to the working folder if it is inside it; a notebook's cell by its number."""
    if (number := cell(path)) is not None:
        return number
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return without_home(path) if relative.startswith("..") else relative


@record
@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's code: the innermost frame outside torch, the standard library and installed packages."""

    file: str
    line: int
    function: str
    #: Not part of the identity: a run may store it masked, or not at all.
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return without_controls(at_line(lasting(self.file), self.line))


def sites_in(value: object) -> Iterator[Site]:
    """Yield the source lines in records, at any depth."""
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
