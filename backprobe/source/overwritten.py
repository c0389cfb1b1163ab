"""Finds methods that return an array which their object overwrites later, and lines that store transitions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records import Site
from .index import Reference, SourceIndex, indexes
from .writes import Write

#: Fewest elements of a stored transition: state, reward and next state.
MIN_STORED = 3


def returned_and_overwritten(files: list[str]) -> list[Site]:
    """Return the lines of methods that return an attribute of their object, alone or in a tuple, into which methods of
    the class write.

    :param files: the user's files.
    """
    found = []
    for index in indexes(files, "return self."):
        for node in index.of(ast.Return):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            if any(isinstance(value, ast.Attribute) and _is_overwritten(index, value) for value in values):
                found.append(index.site(node))
    return found


def _is_overwritten(index: SourceIndex, value: ast.Attribute) -> bool:
    """Return whether methods of a class write into an attribute of ``self``."""
    owner = index.class_of(value.value)
    writes = index.writes_by_reference.get(Reference(value.attr, True, owner), ()) if owner is not None else ()
    return any(_is_in_place(write) for write in writes)


def _is_in_place(write: Write) -> bool:
    """Return whether a write changes an array and does not replace it."""
    if isinstance(write.target, ast.Subscript):
        return write.how in ("assign", "augment")
    return write.how in ("in-place", "array", "out")


def appended_transitions(files: list[str]) -> list[Site]:
    """Return the lines that add a tuple to a container which is long enough for a transition."""
    return [index.site(write.node) for index in indexes(files, "append") for write in _appends(index)]


def _appends(index: SourceIndex) -> Iterator[Write]:
    """Yield the writes that add a tuple of variables to a container."""
    for write in index.writes:
        given = write.node.args[-1] if isinstance(write.node, ast.Call) and write.node.args else None
        if write.how == "add" and isinstance(given, ast.Tuple) and len(given.elts) >= MIN_STORED:
            yield write
