"""Finds the calls, computations and in-place writes on a line of the user's code."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from functools import lru_cache

from .definitions import syntax_nodes

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


@lru_cache(64)
def _by_line(file: str) -> dict[int, list[ast.AST]]:
    """Return for each line of `file` the nodes of its syntax tree that begin there, outer ones first."""
    found: dict[int, list[ast.AST]] = {}
    for node, _ in syntax_nodes(file):
        line = getattr(node, "lineno", None)
        if line is not None:
            found.setdefault(line, []).append(node)
    return found


def _parts(file: str, line: int) -> list[ast.AST]:
    return _by_line(file).get(line, [])


def calls_on(file: str, line: int) -> list[str]:
    """Return the names of the functions that are called on a line."""
    called = [node.func for node in _parts(file, line) if isinstance(node, ast.Call)]
    return [f.id if isinstance(f, ast.Name) else f.attr for f in called if isinstance(f, (ast.Name, ast.Attribute))]


def operations_on(file: str, line: int) -> list[str]:
    """Return the names of the operations on a line: called functions, and operators by the names of their nodes in
    torch.
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


@lru_cache(64)
def lines_with_operations(file: str) -> dict[str, list[int]]:
    """Return for each operation name, as given by ``operations_on``, the lines of `file` that contain it."""
    found: dict[str, list[int]] = {}
    for line in sorted(_by_line(file)):
        for name in dict.fromkeys(operations_on(file, line)):
            found.setdefault(name, []).append(line)
    return found


#: Methods whose names end in an underscore although they do not write to data.
_WRITE_NO_DATA = frozenset({"requires_grad_", "detach_", "share_memory_", "resolve_conj_", "rename_"})
#: Methods of modules, and functions, that write to weights.
_WRITE_WEIGHTS = frozenset({"load_state_dict", "reset_parameters", "update_parameters", "vector_to_parameters"})


@dataclass(frozen=True)
class LineWrite:
    """An in-place write on a line.

    :ivar target: the expression that it writes to.
    :ivar of: ``"gradients"`` or ``"weights"`` if it writes to those of `target`, ``""`` if to `target` itself.
    """

    op: str
    target: str
    of: str = ""


@lru_cache(64)
def _imported(file: str) -> frozenset[str]:
    """Return the names that `file` imports."""
    return frozenset(
        alias.asname or alias.name.partition(".")[0]
        for node, _ in syntax_nodes(file)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    )


def all_writes_on(file: str, line: int) -> list[LineWrite]:
    """Return each in-place write that begins on a line."""
    found = []
    for node in _parts(file, line):
        if isinstance(node, ast.AugAssign):
            found.append(LineWrite(f"__i{_OPERATORS.get(type(node.op), 'op')}__", ast.unparse(node.target)))
        elif isinstance(node, ast.Assign):
            parts = [target.value for target in node.targets if isinstance(target, ast.Subscript)]
            found += [LineWrite("__setitem__", ast.unparse(part)) for part in parts]
        elif isinstance(node, ast.Call) and (write := _write_of_call(node, _imported(file))) is not None:
            found.append(write)
    return [replace(w, of="gradients") if "grad" in w.target.split(".") and not w.of else w for w in found]


def _write_of_call(node: ast.Call, imported: frozenset[str]) -> LineWrite | None:
    name = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    given = {k.arg: k.value for k in node.keywords}
    is_function = owner is None or base_of(ast.unparse(owner)) in imported or ast.unparse(owner).endswith("init")
    first = node.args[0] if node.args else None
    target = first if is_function else owner
    if "out" in given:
        return LineWrite(name or ast.unparse(node.func), ast.unparse(given["out"]))
    if target is None:
        return None
    if name.endswith("_") and not name.endswith("__") and name not in _WRITE_NO_DATA:
        of = "gradients" if name.startswith("clip_grad") and is_function else ""
        return LineWrite(name, ast.unparse(target), of)
    if name in _WRITE_WEIGHTS:
        return LineWrite(name, ast.unparse(target), "weights")
    if "inplace" in given and getattr(given["inplace"], "value", True):
        return LineWrite(name, ast.unparse(target))
    return None


def writes_on(file: str, line: int) -> tuple[str, str] | None:
    """Return the in-place write of a line, if it has one: the operation and the expression that it writes to."""
    found = all_writes_on(file, line)
    return (found[0].op, found[0].target) if found else None


def names_in(expression: str) -> frozenset[str]:
    """Return the variables and attributes in an expression such as ``net.scale[i].data``."""
    return frozenset(re.findall(r"[^\W\d]\w*", expression))


def writes_to(file: str, name: str) -> list[int]:
    """Return the lines of `file` that write in place to a variable of this name."""
    return list(dict.fromkeys(line for line, write in writes_in(file) if base_of(write.target) == name))


@lru_cache(64)
def writes_in(file: str) -> tuple[tuple[int, LineWrite], ...]:
    """Return each in-place write in `file`, with its line."""
    return tuple((line, write) for line in sorted(_by_line(file)) for write in all_writes_on(file, line))


def step_calls_like(file: str, line: int) -> list[int]:
    """Return the lines of `file` with a ``step`` call like that on `line`.

    It has the same object or the same argument: ``optimizer.step()``, ``scaler.step(optimizer)``.
    """
    meant = {name for at, names in _step_calls(file) if at == line for name in names}
    return [at for at, names in _step_calls(file) if meant & names]


@lru_cache(64)
def _step_calls(file: str) -> tuple[tuple[int, frozenset[str]], ...]:
    calls = [node for node, _ in syntax_nodes(file) if isinstance(node, ast.Call)]
    return tuple(
        (node.lineno, frozenset(ast.unparse(part) for part in (node.func.value, *node.args[:1])))
        for node in calls
        if isinstance(node.func, ast.Attribute) and node.func.attr == "step"
    )


def base_of(expression: str) -> str:
    """Return the variable at the head of an expression such as ``x[0].data``; for an attribute of ``self``, the
    attribute.
    """
    head = expression.removeprefix("self.")
    return head[: next((i for i, c in enumerate(head) if not (c.isalnum() or c == "_")), len(head))]


@lru_cache(64)
def _numbers(file: str) -> frozenset[str]:
    """Return the variables and attributes that `file` sets to a literal number, such as counters and sums."""
    found: set[str] = set()
    for node, _ in syntax_nodes(file):
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, (int, float)):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update(base_of(ast.unparse(t)) for t in targets if isinstance(t, (ast.Name, ast.Attribute)))
    return frozenset(found)


def likely_write(file: str, op: str, expression: str) -> int:
    """Return how likely it is that a write is one to a tensor, from 0 to 3.

    `op` and `expression` are from ``writes_on``. 3: an in-place method of torch; 2: a subscript assignment; 1: ``+=``
    and similar; 0: ``+=`` on a counter.
    """
    if not op.startswith("__"):
        return 3
    if op == "__setitem__":
        return 2
    return 0 if base_of(expression) in _numbers(file) else 1
