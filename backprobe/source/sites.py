"""Conversion of a line of a file to a ``Site``, with its text."""

from __future__ import annotations

import linecache

from ..records import Site


def site_at(file: str, line: int, function: str) -> Site:
    """Return a line of a file as a ``Site``, with the text that the file has there."""
    return Site(file, line, function, linecache.getline(file, line).strip())


def is_before(one: Site, other: Site) -> bool:
    """Return whether `one` stands before `other` in the same function."""
    return (one.file, one.function) == (other.file, other.function) and one.line < other.line
