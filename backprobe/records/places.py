"""Where in the user's code."""

from __future__ import annotations

from dataclasses import dataclass

from .registry import record


@record
@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's code: the innermost frame outside torch, the standard library and installed packages."""

    file: str
    line: int
    function: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
