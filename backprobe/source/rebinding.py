"""Finds loops over parameters that assign an update to the loop's variable, which changes no parameter."""

from __future__ import annotations

import ast

from ..records import Site
from .frames import Frames
from .index import SourceIndex, indexes


def rebound_updates(frames: Frames) -> list[Site]:
    """Return the user's lines like ``p = p - lr * p.grad`` in a loop over ``p`` that reads ``p`` nowhere after it."""
    return [
        index.site(node)
        for index in indexes(frames.users_files(), "grad")
        for node in index.of(ast.Assign)
        if _is_update(index, node) and _is_lost(index, node)
    ]


def _is_update(index: SourceIndex, node: ast.Assign) -> bool:
    """Return whether a variable gets its own value minus or plus something with its own gradient."""
    target, value = node.targets[0], node.value
    if len(node.targets) != 1 or not isinstance(target, ast.Name) or not isinstance(value, ast.BinOp):
        return False
    if not isinstance(value.op, (ast.Sub, ast.Add)):
        return False
    below = index.walk(value)
    return any(isinstance(one, ast.Attribute) and one.attr == "grad" and _is(one.value, target.id) for one in below)


def _is_lost(index: SourceIndex, node: ast.Assign) -> bool:
    """Return whether the variable is that of the innermost loop around, and is read nowhere after the assignment."""
    name = node.targets[0].id  # type: ignore[attr-defined]
    loop = next((one for one in index.around(node) if isinstance(one, (ast.For, ast.AsyncFor, ast.While))), None)
    if not isinstance(loop, ast.For) or not any(_is(one, name) for one in index.walk(loop.target)):
        return False
    after = (one for one in index.inside(index.scopes[node].function) if getattr(one, "lineno", 0) > node.lineno)
    later = (one for one in after if isinstance(one, ast.Name) and one.id == name and not index.contains(node, one))
    # In another loop over the same name, the variable is another tensor.
    return not any(isinstance(one.ctx, ast.Load) and loop in index.around(one) for one in later)


def _is(node: ast.AST, name: str) -> bool:
    """Return whether a node is the variable `name`."""
    return isinstance(node, ast.Name) and node.id == name
