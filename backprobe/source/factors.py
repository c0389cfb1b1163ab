"""Finds the line that computes the number by which a line multiplies a term of a loss."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from ..records import Site
from .calls import calls_of, functions_called
from .index import FUNCTIONS, Reference, Scope, SourceIndex, index_of, indexes, spans

#: Maximum number of assignments, calls and arguments that are followed from the line.
MAX_DEPTH = 4
_PRODUCTS = (ast.Mult, ast.Div)
#: Modules whose functions compute numbers.
_NUMBER_MODULES = ("math", "np", "numpy")
_PLAIN = (ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare)


def factor_computed(site: Site, files: list[str]) -> Site | None:
    """Return the line that computes the number by which the line `site` multiplies something.

    ``None`` if no line does, if it is `site` itself, or if it may be several.

    :param files: the user's files.
    """
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    operands: list[ast.AST] = []
    for node in index.inside(function):
        if spans(node, site.line) and isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, _PRODUCTS):
            operands += [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
    found = {line for one in operands for line in _computing_lines(index, function, one, site.line, files, 0)}
    return found.pop() if len(found) == 1 else None


def _computing_lines(
    index: SourceIndex, function: Scope, node: ast.AST, line: int, files: list[str], depth: int
) -> Iterator[Site]:
    """Yield the lines that compute the number `node`; nothing if it may be a tensor, or an arithmetic expression on
    the line that is asked about.
    """
    if depth > MAX_DEPTH:
        return
    if depth and not isinstance(node, (ast.Name, ast.Attribute, ast.Constant)) and _is_arithmetic(index, node):
        yield index.site(node)
        return
    nexts: Iterator[tuple[SourceIndex, Scope, ast.AST]] = iter(())
    if isinstance(node, ast.Call):
        nexts = _results(functions_called(index, node, files))
    elif isinstance(node, (ast.Name, ast.Attribute)):
        writes = list(_writes(index, function, node, line, files))
        yield from (where.site(write) for where, write in writes if isinstance(write, ast.AugAssign))
        nexts = (
            (where, where.scopes[write].function, write)
            for where, write in writes
            if not isinstance(write, ast.AugAssign)
        )
        if not writes:
            nexts = _given(index, function, node, files)
    for where, scope, value in nexts:
        yield from _computing_lines(where, scope, value, getattr(value, "lineno", line), files, depth + 1)


def _is_arithmetic(index: SourceIndex, node: ast.AST) -> bool:
    """Return whether an expression computes a number from numbers, by operators and by functions of numbers."""
    return all(
        isinstance(one, _PLAIN) or (isinstance(one, ast.Call) and _gives_number(index, one.func))
        for one in index.walk(node)
        if isinstance(one, ast.expr)
    )


def _gives_number(index: SourceIndex, func: ast.AST) -> bool:
    """Return whether a function is built in, as ``min`` is, or one of a module for numbers."""
    if isinstance(func, ast.Name):
        return hasattr(builtins, func.id)
    return (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id in _NUMBER_MODULES
        and index.is_imported(func)
    )


def _writes(
    index: SourceIndex, function: Scope, node: ast.Name | ast.Attribute, line: int, files: list[str]
) -> Iterator[tuple[SourceIndex, ast.AST]]:
    """Yield what gives a variable of a function its value before a line, or what gives an attribute its value: the
    assigned expression, or the statement if it is ``+=``.
    """
    reference = index.reference(node)
    if isinstance(node, ast.Name):
        writes = [one for one in index.writes_by_reference.get(reference, ()) if one.how in ("assign", "augment")]
        inside = [one for one in writes if index.scopes[one.node].function is function]
        before = [one for one in inside if one.line < line] or inside or writes
        chosen = [one for one in writes if one.how == "augment"] or before[-1:]
        yield from ((index, one.node if one.how == "augment" else one.value) for one in chosen if one.value is not None)
        return
    owners = (reference, Reference(node.attr, True, None))
    for where in indexes(files, node.attr):
        for one in (write for owner in dict.fromkeys(owners) for write in where.writes_by_reference.get(owner, ())):
            if one.value is not None and one.how in ("assign", "augment"):
                yield where, one.node if one.how == "augment" else one.value


def _given(
    index: SourceIndex, function: Scope, node: ast.Name | ast.Attribute, files: list[str]
) -> Iterator[tuple[SourceIndex, Scope, ast.AST]]:
    """Yield the results of a property, or the arguments that calls give for a parameter, each with its function."""
    if isinstance(node, ast.Attribute):
        owner = index.class_of(node.value)
        getters = owner.bound.get(node.attr, ()) if owner is not None else ()
        yield from _results([(index, index.opened[one]) for one in getters if isinstance(one, FUNCTIONS)])
        return
    parameters = function.parameters
    if node.id not in parameters or not isinstance(function.node, FUNCTIONS):
        return
    at = parameters.index(node.id)
    for where, call in calls_of(index, function, files):
        values = [one.value for one in call.keywords if one.arg == node.id] or call.args[at : at + 1]
        yield from ((where, where.scopes[call].function, one) for one in values)


def _results(functions: list[tuple[SourceIndex, Scope]]) -> Iterator[tuple[SourceIndex, Scope, ast.AST]]:
    """Yield the expressions that functions return, each with its function."""
    for where, called in functions:
        for one in where.exits(called):
            value = one.value if isinstance(one, ast.Return) else None
            if value is not None:
                yield where, called, value
