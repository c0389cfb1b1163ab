"""Finds lines that stop to draw tokens at an id."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ..records import Site
from .index import SourceIndex, index_of, last_name

#: Functions that choose the next token of a sequence.
_CHOOSES = frozenset(("argmax", "multinomial"))


def stop_line(file: str, names: Mapping[str, object], token: int) -> Site | None:
    """Return the first line of a function that chooses tokens and stops at `token`; ``None`` if there is none.

    Such a line is ``if x == END: break``, or the same with ``return`` or ``while x != END``.

    :param names: the global variables of the file, in which the value of ``END`` is looked up.
    """
    index = index_of(file)
    choosing = {id(index.scopes[call].function.node) for call in index.of(ast.Call) if last_name(call.func) in _CHOOSES}
    for node in index.of(ast.If, ast.While):
        if id(index.scopes[node].function.node) in choosing and _stops_at(index, node, names, token):
            return index.site(node)
    return None


def _stops_at(index: SourceIndex, node: ast.If | ast.While, names: Mapping[str, object], token: int) -> bool:
    """Return whether a statement leaves a loop or a function because a value is equal to `token`."""
    if isinstance(node, ast.While):
        return any(_compares(index, one, names, token, ast.NotEq) for one in index.walk(node.test))
    leaves = tuple(type(one) for one in node.body if isinstance(one, (ast.Break, ast.Return)))
    return bool(leaves) and any(
        _compares(index, one, names, token, ast.Eq, is_break=ast.Break in leaves) for one in index.walk(node.test)
    )


def _compares(
    index: SourceIndex,
    node: ast.AST,
    names: Mapping[str, object],
    token: int,
    how: type[ast.cmpop],
    is_break: bool = False,
) -> bool:
    """Return whether an expression compares a value with `token`: a global variable, or a number before a ``break``."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], how):
        return False
    value, other = node.left, node.comparators[0]
    if isinstance(value, ast.BinOp) or "len" in _called(index, value):  # a step, or how many there are
        return False
    if isinstance(other, ast.Name):
        known = names.get(other.id)
        return type(known) is int and known == token and index.scopes[other].holder(other.id).parent is None
    return is_break and isinstance(other, ast.Constant) and type(other.value) is int and other.value == token


def _called(index: SourceIndex, node: ast.AST) -> Iterator[str]:
    """Yield the names of the functions that an expression calls."""
    return (last_name(one.func) for one in index.walk(node) if isinstance(one, ast.Call))
