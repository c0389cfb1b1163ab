"""Lines of the user's code that shift labels or targets by a position, or leave some of them out."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ..records import Site
from .index import SourceIndex, indexes, last_name

#: Parts of the names of what a loss compares predictions with.
_TARGETS = ("label", "target", "shift")
#: Attributes of a tokenizer of transformers that hold its padding.
_PADDING = ("pad_token", "pad_token_id")


def shift_lines(files: Collection[str]) -> tuple[Site, ...]:
    """Return the lines that give a label or target, by name, all elements but the first, or a rolled tensor."""
    found = (
        index.site(node)
        for index in indexes(files)
        for node in index.of(ast.Subscript, ast.Call)
        if _shifts(node) and any(part in name for name in _names_for(index, node) for part in _TARGETS)
    )
    return tuple(dict.fromkeys(found))


def blanking_lines(files: Collection[str], ignored: int) -> tuple[Site, ...]:
    """Return the lines that replace ids by `ignored` where a comparison says so; if there are none, those that give it
    as ``ignore_index``.
    """
    replaced, given = list[Site](), list[Site]()
    for index in indexes(files):
        for node in index.of(ast.keyword):
            if node.arg == "ignore_index" and (ignored >= 0 or _is_number(node.value, ignored)):
                given.append(index.site(node.value))
        for node in index.of(ast.UnaryOp):
            if _is_number(node, ignored) and _is_by_comparison(index, node):
                replaced.append(index.site(node))
    return tuple(dict.fromkeys(replaced or given))


def padding_id_lines(files: Collection[str]) -> tuple[Site, ...]:
    """Return the lines that give a tokenizer its padding, as ``tokenizer.pad_token = tokenizer.eos_token``."""
    found = [
        (index.site(node), isinstance(node.value, ast.Constant))
        for index in indexes(files, "pad_token")
        for node in index.of(ast.Assign)
        if any(isinstance(one, ast.Attribute) and one.attr in _PADDING for one in node.targets)
    ]
    names_another = any(not is_new for _, is_new in found)  # not a text, which may be a token of its own
    return tuple(dict.fromkeys(site for site, is_new in found if not (names_another and is_new)))


def _is_number(node: ast.AST, number: int) -> bool:
    """Return whether an expression is the integer `number`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_number(node.operand, -number)
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == number


def _is_by_comparison(index: SourceIndex, node: ast.AST) -> bool:
    """Return whether the statement around an expression compares something for equality, but not with `node`."""
    parent = index.parents.get(node)
    while parent is not None and not isinstance(parent, ast.stmt):
        if isinstance(parent, (ast.Compare, ast.keyword)):
            return False
        parent = index.parents.get(parent)
    return isinstance(parent, ast.stmt) and any(
        isinstance(one, ast.Compare) and isinstance(one.ops[0], (ast.Eq, ast.NotEq)) for one in index.walk(parent)
    )


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
