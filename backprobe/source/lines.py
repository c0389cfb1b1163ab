"""What stands on a line of the user's code: what it calls, computes and writes in place."""

from __future__ import annotations

import ast
from functools import lru_cache

from .defined import syntax_nodes

_OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
#: By the names that torch gives to their nodes.
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
    """By line of `file`, the nodes of its syntax tree that begin there, outer ones first."""
    found: dict[int, list[ast.AST]] = {}
    for node, _ in syntax_nodes(file):
        line = getattr(node, "lineno", None)
        if line is not None:
            found.setdefault(line, []).append(node)
    return found


def _parts(file: str, line: int) -> list[ast.AST]:
    return _by_line(file).get(line, [])


def calls_on(file: str, line: int) -> list[str]:
    """The names of what is called on a line."""
    called = [node.func for node in _parts(file, line) if isinstance(node, ast.Call)]
    return [f.id if isinstance(f, ast.Name) else f.attr for f in called if isinstance(f, (ast.Name, ast.Attribute))]


def operations_on(file: str, line: int) -> list[str]:
    """The names of what is computed on a line: functions that are called, and signs by the names that torch gives
    their nodes."""
    signs = [
        _SIGNS[type(node.op)]
        for node in _parts(file, line)
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.AugAssign)) and type(node.op) in _SIGNS
    ]
    calls = [node.func for node in _parts(file, line) if isinstance(node, ast.Call)]
    functions = [  # of custom functions, whose nodes have their names
        f"{f.value.id}.apply"
        for f in calls
        if isinstance(f, ast.Attribute) and f.attr == "apply" and isinstance(f.value, ast.Name)
    ]
    return [*functions, *calls_on(file, line), *signs]


def writes_on(file: str, line: int) -> tuple[str, str] | None:
    """What a line writes in place, if it does: the operation and the expression that it writes to."""
    for node in _parts(file, line):
        if isinstance(node, ast.AugAssign):
            return f"__i{_OPERATORS.get(type(node.op), 'op')}__", ast.unparse(node.target)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    return "__setitem__", ast.unparse(target.value)
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            out = next((k.value for k in node.keywords if k.arg == "out"), None)
            if out is not None:
                return name or ast.unparse(node.func), ast.unparse(out)
            if name.endswith("_") and not name.endswith("__") and isinstance(node.func, ast.Attribute):
                first = node.args[0] if node.args and ast.unparse(node.func.value).endswith("init") else node.func.value
                return name, ast.unparse(first)
    return None


def writes_to(file: str, name: str) -> list[int]:
    """The lines of `file` that write in place to a variable of this name."""
    written = ((line, writes_on(file, line)) for line in sorted(_by_line(file)))
    return [line for line, write in written if write is not None and base_of(write[1]) == name]


def base_of(expression: str) -> str:
    """The variable at the head of an expression such as ``x[0].data``; an attribute of ``self`` by its own name."""
    head = expression.removeprefix("self.")
    return head[: next((i for i, c in enumerate(head) if not (c.isalnum() or c == "_")), len(head))]


@lru_cache(64)
def _numbers(file: str) -> frozenset[str]:
    """The variables and attributes that `file` sets to a number that stands there: counters, sums."""
    found: set[str] = set()
    for node, _ in syntax_nodes(file):
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, (int, float)):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update(base_of(ast.unparse(t)) for t in targets if isinstance(t, (ast.Name, ast.Attribute)))
    return frozenset(found)


def likely_write(file: str, op: str, expression: str) -> int:
    """How likely it is that a write, as ``writes_on`` says it, is one to a tensor: 3 for a method of torch's that
    writes, 2 for an element that is set, 1 for ``+=`` and the like, 0 for that to what counts."""
    if not op.startswith("__"):
        return 3
    if op == "__setitem__":
        return 2
    return 0 if base_of(expression) in _numbers(file) else 1
