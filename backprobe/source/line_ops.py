"""Finds the calls, computations and in-place writes on a line of the user's code."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache

from .index import MAX_INDEXED_FILES, Reference, SourceIndex, index_of, last_name, text_of
from .writes import Write

_OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
#: Operators -> the names that torch gives to their nodes.
_SIGNS: dict[type, str] = {
    **_OPERATORS,
    ast.Div: "div",
    ast.MatMult: "mm",
    ast.USub: "neg",
    ast.FloorDiv: "floordivide",
    ast.Mod: "remainder",
}


def _parts(file: str, line: int) -> list[ast.AST]:
    """Return the nodes of the syntax tree that begin on a line, outer ones first."""
    return index_of(file).by_line.get(line, [])


def calls_on(file: str, line: int) -> list[str]:
    """Return the names of the functions that are called on a line."""
    return [name for node in _parts(file, line) if isinstance(node, ast.Call) and (name := last_name(node.func))]


def operations_on(file: str, line: int) -> list[str]:
    """Return the names of the operations on a line.

    These are called functions, and operators by the names that torch gives to their nodes.
    """
    signs = [
        _SIGNS[type(node.op)]
        for node in _parts(file, line)
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.AugAssign)) and type(node.op) in _SIGNS
    ]
    calls = [node.func for node in _parts(file, line) if isinstance(node, ast.Call)]
    functions = [  # custom functions, whose nodes have their names
        f"{f.value.id}.apply"
        for f in calls
        if isinstance(f, ast.Attribute) and f.attr == "apply" and isinstance(f.value, ast.Name)
    ]
    return [*functions, *calls_on(file, line), *signs]


def operations_in_order(file: str, line: int) -> list[str]:
    """Return the names of the operations on `line`, in execution order; see ``operations_on``."""
    found: list[str] = []
    outer = [node for node in _parts(file, line) if isinstance(node, (ast.expr, ast.AugAssign))]
    inner = {id(below) for node in outer for below in ast.walk(node) if below is not node}
    stack: list[tuple[ast.AST, bool]] = [(node, False) for node in reversed(outer) if id(node) not in inner]
    while stack:
        node, ran = stack.pop()
        if not ran:
            stack += [(node, True), *((below, False) for below in reversed(list(ast.iter_child_nodes(node))))]
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            found.append(node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
        elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.AugAssign)) and type(node.op) in _SIGNS:
            found.append(_SIGNS[type(node.op)])
    return found


def lines_with_operations(file: str) -> dict[str, list[int]]:
    """Return for each operation name, as given by ``operations_on``, the lines of `file` that contain it."""
    return _lines_with_operations(index_of(file))


@lru_cache(MAX_INDEXED_FILES)
def _lines_with_operations(index: SourceIndex) -> dict[str, list[int]]:
    """Return for each operation name the lines of a file that contain it; kept for the last files."""
    found: dict[str, list[int]] = {}
    for line in sorted(index.by_line):
        for name in dict.fromkeys(operations_on(index.file, line)):
            found.setdefault(name, []).append(line)
    return found


@dataclass(frozen=True)
class LineWrite:
    """An in-place write on a line.

    :ivar target: the expression that it writes to.
    :ivar variable: the variable at the head of `target`; for an attribute of ``self``, the attribute.
    :ivar names: the variables and attributes in `target`.
    :ivar of: ``"gradients"`` or ``"weights"`` if it writes to those of `target`, ``""`` if to `target` itself.
    :ivar likelihood: how likely it writes to a tensor: 3 for an op, 2 for an element, 1 for ``+=``, 0 for a counter.
    """

    line: int
    op: str
    target: str
    variable: str
    names: frozenset[str]
    of: str
    likelihood: int


def writes_on(file: str, line: int) -> list[LineWrite]:
    """Return each in-place write that begins on a line."""
    return [write for write in writes_in(file) if write.line == line]


def writes_in(file: str) -> tuple[LineWrite, ...]:
    """Return each in-place write in `file`, by line."""
    return _writes_in(index_of(file))


@lru_cache(MAX_INDEXED_FILES)
def _writes_in(index: SourceIndex) -> tuple[LineWrite, ...]:
    """Return each in-place write in a file, by line; kept for the last files."""
    found = [line_write for write in index.writes if (line_write := _line_write(index, write)) is not None]
    return tuple(sorted(found, key=lambda one: one.line))


def _line_write(index: SourceIndex, write: Write) -> LineWrite | None:
    """Return a write of the source as an in-place write to a tensor; ``None`` if it is none."""
    target, op, likelihood = write.target, write.op, 3
    if write.how == "augment":
        assert isinstance(write.node, ast.AugAssign)
        op, likelihood = f"__i{_OPERATORS.get(type(write.node.op), 'op')}__", int(not _is_counter(index, target))
    elif write.how == "assign" and isinstance(target, ast.Subscript):
        target, op, likelihood = target.value, "__setitem__", 2
    elif write.how not in ("in-place", "weights", "out"):
        return None
    text, names = text_of(target), frozenset(last_name(one) for one in index.walk(target)) - {""}
    of = "weights" if write.how == "weights" else ""
    if not of and ("grad" in text.split(".") or op.startswith("clip_grad")):
        of = "gradients"
    return LineWrite(write.line, op, text, _variable(index, target), names, of, likelihood)


def _variable(index: SourceIndex, target: ast.AST) -> str:
    """Return the variable at the head of an expression; for an attribute of ``self``, the attribute."""
    name = ""
    while isinstance(target, (ast.Attribute, ast.Subscript, ast.Call)):
        name = target.attr if isinstance(target, ast.Attribute) else name if isinstance(target, ast.Call) else ""
        target = target.func if isinstance(target, ast.Call) else target.value
    return name or "self" if last_name(target) == "self" else last_name(target)


def _is_counter(index: SourceIndex, target: ast.AST) -> bool:
    """Return whether the file sets a variable or attribute to a literal number: a counter or a sum."""
    found, counters = index.reference(target), _counters(index)
    if found is None or found.owner is not None:
        return found in counters
    return any(one is not None and one.is_attribute and one.name == found.name for one in counters)


@lru_cache(MAX_INDEXED_FILES)
def _counters(index: SourceIndex) -> frozenset[Reference | None]:
    """Return the variables and attributes that a file sets to a literal number."""
    return frozenset(
        index.reference(target)
        for target, value in index.values.items()
        if isinstance(value, ast.Constant) and isinstance(value.value, (int, float))
        if isinstance(target, (ast.Name, ast.Attribute))
    ) - {None}


def step_calls_like(file: str, line: int) -> list[int]:
    """Return the lines of `file` with a ``step`` call like that on `line`.

    It has the same object or the same argument: ``optimizer.step()``, ``scaler.step(optimizer)``.
    """
    calls = [
        (call.lineno, {text_of(part) for part in (call.func.value, *call.args[:1])})
        for call in index_of(file).of(ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step"
    ]
    meant = {name for at, names in calls if at == line for name in names}
    return [at for at, names in calls if meant & names]
