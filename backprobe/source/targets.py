"""Lines of the user's code that shift labels or targets by a position."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ..records import Site
from .index import SourceIndex, indexes, last_name

#: Parts of the names of what a loss compares predictions with.
_TARGETS = ("label", "target", "shift")


def shift_lines(files: Collection[str]) -> tuple[Site, ...]:
    """Return the lines that give a label or target, by name, all elements but the first, or a rolled tensor."""
    found = (
        index.site(node)
        for index in indexes(files)
        for node in index.of(ast.Subscript, ast.Call)
        if _shifts(node) and any(part in name for name in _names_for(index, node) for part in _TARGETS)
    )
    return tuple(dict.fromkeys(found))


def _shifts(node: ast.AST) -> bool:
    """Return whether an expression is a call of ``roll``, or takes the elements from the second on (``x[1:]``)."""
    if isinstance(node, ast.Call):
        return last_name(node.func) == "roll"
    parts = node.slice.elts if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else [node.slice]  # type: ignore[attr-defined]
    return any(isinstance(part, ast.Slice) and _is_one(part.lower) and part.upper is None for part in parts)


def _is_one(node: ast.AST | None) -> bool:
    """Return whether an expression is the constant 1."""
    return isinstance(node, ast.Constant) and node.value == 1


def _names_for(index: SourceIndex, node: ast.AST) -> Iterator[str]:
    """Yield the names that a value gets: of the variable, keyword or key, and of the value that it is a part of."""
    for part in index.walk(node):
        yield last_name(part).lower()
    parent = index.parents.get(node)
    while parent is not None and not isinstance(parent, ast.stmt):
        if isinstance(parent, ast.keyword):
            yield (parent.arg or "").lower()
        if isinstance(parent, ast.Dict):
            at = next((i for i, value in enumerate(parent.values) if value is node), None)
            key = parent.keys[at] if at is not None else None
            yield str(key.value).lower() if isinstance(key, ast.Constant) else ""
            return
        node, parent = parent, index.parents.get(parent)
    if isinstance(parent, ast.Assign):
        for target in parent.targets:
            for part in index.walk(target):
                yield last_name(part).lower()
