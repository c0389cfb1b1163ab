"""Which lines of the user's code ran for the first time lately: told afterwards, at no cost while they run.

Note [What the interpreter leaves behind]: from Python 3.11 on, the interpreter adapts each instruction to what it meets
when it runs it, in the code object itself. What has changed between two looks has run; where nothing had ever changed
before, it ran for the first time. A function that was called fewer times than it takes to be adapted shows nothing: its
call does, in the code that calls it. On an older Python nothing is told.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from .frames import Frames, Spot


def _adapted(code: Any) -> bytes:
    return bytes(code._co_code_adaptive)


#: Whether this Python shows it.
SHOWS = hasattr(compile("0", "", "eval"), "_co_code_adaptive")
_UNIT = 2


class FirstRuns:
    """Looks at the code of the user's files that was met so far, and all that is defined beside it."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._codes: dict[int, CodeType] = {}
        self._last: dict[int, bytes] = {}
        #: By code, where something has ever changed.
        self._ran: dict[int, set[int]] = {}
        self._met = -1

    def look(self) -> list[Spot]:
        """The lines that ran for the first time since the last look: one place of each, in the order of the code."""
        if not SHOWS:
            return []
        self._gather()
        found: list[Spot] = []
        for key, code in self._codes.items():
            now, last = _adapted(code), self._last.get(key)
            if now == last:
                continue
            self._last[key] = now
            if last is not None and last != code.co_code:  # all of it changes when it begins to be adapted
                found += self._changed(code, last, now, self._ran.setdefault(key, set()))
        return found

    def _changed(self, code: CodeType, last: bytes, now: bytes, ran: set[int]) -> list[Spot]:
        """By line, the first instruction that had never changed and has now."""
        lines: dict[int, int] = {}
        places: list[Any] = list(getattr(code, "co_positions")())  # noqa: B009, not in Python 3.10
        for at in range(0, min(len(last), len(now)), _UNIT):
            line = places[at // _UNIT][0]
            if at not in ran and last[at : at + _UNIT] != now[at : at + _UNIT] and line is not None:
                ran.add(at)
                lines.setdefault(line, at)
        return [(code, at) for line, at in lines.items()]

    def _gather(self) -> None:
        codes = self._frames.users_codes()
        if len(codes) == self._met:
            return
        self._met = len(codes)
        files = {code.co_filename for code in codes}
        for module in list(sys.modules.values()):
            if getattr(module, "__file__", None) in files:
                codes += [function.__code__ for function in _functions(vars(module))]
        for code in codes:  # grows as we go
            if id(code) not in self._codes:
                self._codes[id(code)] = code
            codes += [c for c in code.co_consts if isinstance(c, CodeType) and id(c) not in self._codes]

    def called_from(self, spots: list[Spot]) -> list[Spot]:
        """The lines of `spots`, and those of the user's functions that are called there by a name that one has."""
        found = list(spots)
        named: dict[str, list[CodeType]] = {}
        for code in self._codes.values():
            named.setdefault(code.co_name, []).append(code)
        seen: set[int] = set()
        for code, at in found:  # grows as we go
            site = self._frames.site((code, at))
            for name in calls_on(code.co_filename, site.line if site is not None else 0):
                for called in named.get(name, ()):
                    if id(called) not in seen and called is not code and len(found) < 1000:
                        seen.add(id(called))
                        lines = {line: begin for begin, _, line in reversed(list(called.co_lines()))}
                        found += [(called, begin) for line, begin in sorted(lines.items(), key=str) if line is not None]
        return found


def _functions(names: dict[str, Any]) -> Iterator[FunctionType]:
    for value in list(names.values()):
        kind = type(value)  # and not what the value says it is: a deprecated one warns when it is asked
        if kind is FunctionType:
            yield value
        elif issubclass(kind, type):
            yield from (one for one in vars(value).values() if isinstance(one, FunctionType))


@lru_cache(256)
def _statements(file: str) -> dict[int, list[ast.stmt]]:
    """The statements of `file` by their lines; of a compound one, those of its head."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    found: dict[int, list[ast.stmt]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            for line in range(node.lineno, max(last, node.lineno) + 1):
                found.setdefault(line, []).append(node)
    return found


def _parts(file: str, line: int) -> Iterator[ast.AST]:
    """What stands on a line, but for the bodies of compound statements."""
    for statement in _statements(file).get(line, ()):
        for node in ast.walk(statement):
            if getattr(node, "lineno", None) == line:
                yield node


def calls_on(file: str, line: int) -> list[str]:
    """The names of what is called on a line."""
    called = [node.func for node in _parts(file, line) if isinstance(node, ast.Call)]
    return [f.id if isinstance(f, ast.Name) else f.attr for f in called if isinstance(f, (ast.Name, ast.Attribute))]


def writes_to(file: str, name: str) -> list[int]:
    """The lines of `file` that write in place to a variable of this name."""
    found = []
    for line in sorted(_statements(file)):
        write = writes_on(file, line)
        if write is not None and base_of(write[1]) == name:
            found.append(line)
    return found


def base_of(expression: str) -> str:
    """The variable at the head of an expression such as ``x[0].data``; an attribute of ``self`` by its own name."""
    head = expression.removeprefix("self.")
    return head[: next((i for i, c in enumerate(head) if not (c.isalnum() or c == "_")), len(head))]


_OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}


_SIGNS: dict[type, str] = {
    **_OPERATORS,
    ast.Div: "div",
    ast.MatMult: "mm",
    ast.USub: "neg",
    ast.FloorDiv: "floordivide",
    ast.Mod: "remainder",
}


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
