"""Finds what a custom function's forward keeps outside ``ctx``, and whether its backward uses it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..records import Site
from .definitions import scope_of
from .index import Scope, SourceIndex, container, last_name
from .writes import Write

if TYPE_CHECKING:
    import torch

#: Writes that keep a value, and those that write into a buffer which exists already.
_KEEPING = frozenset({"assign", "augment", "add", "setattr"})
_INTO_BUFFER = frozenset({"in-place", "array", "out"})
#: Attributes of ``ctx`` that lead to its class, which all calls share.
_CLASS_OF_CTX = frozenset({"__class__", "_forward_cls"})


def state_written(function: type[torch.autograd.Function]) -> Site | None:
    """Return the first line of a custom function's forward that keeps a value outside of its ``ctx``.

    It assigns to an attribute or an element of another object, or to a global variable, or adds to a container.
    """
    return next((index.site(write.node) for index, _, write in _kept(function) if write.how in _KEEPING), None)


def state_shared(function: type[torch.autograd.Function]) -> Site | None:
    """Return the first line of a custom function's forward that keeps, outside of its ``ctx``, what its backward reads.

    Values that the backward only counts, prints or writes to do not count.
    """
    read: set[str] | None = None
    for index, scope, write in _kept(function):
        if read is None:
            read = _names_read(function)
        mine = read | _names_put_on_context(index, scope) if write.how in _INTO_BUFFER else read
        if last_name(container(write.target)) in mine:
            return index.site(write.node)
    return None


def _kept(function: Any) -> Iterator[tuple[SourceIndex, Scope, Write]]:
    """Yield the writes of a custom function's forward, and of its ``setup_context``, to what other calls see, too."""
    for method in (function.forward, function.setup_context):
        read = scope_of(method)
        if read is None:
            continue
        index, scope = read
        for write in index.writes_in(scope.node):
            if write.how in _KEEPING | _INTO_BUFFER and _is_shared(index, scope, write):
                yield index, scope, write


def _is_shared(index: SourceIndex, scope: Scope, write: Write) -> bool:
    """Return whether a write in the function `scope` changes something that is neither on its ``ctx`` nor local."""
    context, target, chain = next(iter(scope.parameters), ""), write.target, set[str]()
    root = target
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        chain.add(getattr(root, "attr", ""))
        root = root.value
    if isinstance(root, ast.Call):  # type(ctx).kept = x
        return last_name(root.func) == "type"
    if not isinstance(root, ast.Name):
        return False
    if root.id == context:
        return bool(chain & _CLASS_OF_CTX)
    if not index.contains(scope.node, index.holder(root).node):
        return True
    # An attribute of an argument, such as a module; the argument itself and its elements are an input of this call.
    of_argument = root.id in scope.parameters and isinstance(container(target), ast.Attribute)
    return of_argument and write.how in _KEEPING


def _names_read(function: Any) -> set[str]:
    """Return the names of attributes and of variables from outside that the backward of a custom function reads."""
    read = scope_of(function.backward)
    if read is None:
        return set()
    index, scope = read
    return {
        name
        for node in index.walk(scope.node)
        if (name := _name_from_outside(index, scope, node)) and not _is_aside(index, node)
    }


def _name_from_outside(index: SourceIndex, scope: Scope, node: ast.AST) -> str:
    """Return the name that `node` reads, if it is an attribute, or a variable that is not local to `scope`."""
    if isinstance(node, ast.Call) and last_name(node.func) == "getattr" and len(node.args) > 1:
        value = getattr(node.args[1], "value", "")
        return value if isinstance(value, str) else ""
    if not isinstance(node, (ast.Attribute, ast.Name)) or not isinstance(node.ctx, ast.Load):
        return ""
    return "" if isinstance(node, ast.Name) and index.holder(node) is scope else last_name(node)


def _is_aside(index: SourceIndex, node: ast.AST) -> bool:
    """Return whether `node` is a part of a statement that gives the backward no value: a write to it, or a call."""
    while not isinstance(node, ast.stmt):
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            return True
        node = index.parents[node]
    return isinstance(node, ast.Expr)


def _names_put_on_context(index: SourceIndex, scope: Scope) -> set[str]:
    """Return the names that a forward reads in what it puts on ``ctx``, as an attribute or with a method."""
    context, values = next(iter(scope.parameters), ""), list[ast.AST]()
    for node in index.walk(scope.node):
        if isinstance(node, ast.Assign) and any(
            last_name(getattr(one, "value", None)) == context for one in node.targets
        ):
            values.append(node.value)
        elif isinstance(node, ast.Call) and last_name(getattr(node.func, "value", None)) == context:
            values += node.args
    return {name for value in values for node in index.walk(value) if (name := _name_from_outside(index, scope, node))}
