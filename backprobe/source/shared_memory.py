"""Finds the line that writes into a NumPy array which shares a tensor's memory: torch does not see such writes.

Follows the array in the source code, from the line that took it from the tensor: through names, views and loops over
it, into the user's functions that get it as an argument and out of those that return it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records import Site
from .calls import Function, calls_of, functions_called
from .frames import Frames
from .index import Reference, Scope, SourceIndex, index_of, last_name, spans
from .writes import Write

#: Calls and attributes whose result shares memory with their argument.
_VIEWS = frozenset(
    (
        *("numpy", "asarray", "asanyarray", "ascontiguousarray", "reshape", "ravel", "squeeze", "transpose"),
        *("swapaxes", "moveaxis", "expand_dims", "view", "T", "atleast_1d", "atleast_2d", "atleast_3d"),
        *("broadcast_to", "flat", "real", "imag", "diagonal", "detach", "data", "cpu", "from_dlpack", "enumerate"),
        *("zip", "reversed", "iter", "list", "tuple"),
    )
)
_TAKES_OUT = frozenset(("numpy", "asarray", "__array__", "from_dlpack", "asanyarray"))
#: Maximum depth of functions into which an array is followed.
DEPTH = 4


def written_through(site: Site, frames: Frames) -> Site | None:
    """Return the first line that writes into an array that the statement at `site` took from a tensor; ``None`` if
    none.
    """
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    return _Search(frames.users_files(), site).inside(index, function, set(), 0)


class _Search:
    """Follows an array through the user's functions, each function at most once with the same names."""

    def __init__(self, files: list[str], start: Site) -> None:
        self._files, self._start = files, start
        self._seen: set[tuple[Scope, frozenset[Reference]]] = set()

    def inside(self, index: SourceIndex, function: Scope, names: set[Reference], depth: int) -> Site | None:
        """Return the first line in `function`, or in functions that get the array from it, that writes to the array.

        :param names: the variables and attributes that refer to the array when the function begins.
        :param depth: the number of calls from the start.
        """
        key = (function, frozenset(names))
        if key in self._seen or depth > DEPTH:
            return None
        self._seen.add(key)
        names, given = set(names), list[tuple[Function, set[Reference]]]()
        writes: dict[ast.AST, list[Write]] = {}
        for write in index.writes_in(function.node):
            writes.setdefault(write.node, []).append(write)
        for node in sorted(index.inside(function), key=lambda one: _line(index, one)):
            for write in writes.get(node, ()):
                if _is_written(write) and self._shares(index, write.target, names):
                    return index.site(node)
                if write.how in ("assign", "loop", "with") and self._shares(index, write.value, names):
                    target = index.reference(write.target) if not isinstance(write.target, ast.Subscript) else None
                    names |= {target} if target is not None else set()
            if isinstance(node, ast.Call):
                given += self._given(index, node, names)
            elif isinstance(node, ast.Return) and self._shares(index, node.value, names):
                given += self._returned(index, function)
        found = (self.inside(*called, more, depth + 1) for called, more in given)
        return next((one for one in found if one is not None), None)

    def _shares(self, index: SourceIndex, node: ast.AST | None, names: set[Reference]) -> bool:
        """Return whether the value of an expression may share memory with the array.

        :param names: the variables and attributes that refer to the array.
        """
        stack = [node]
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.Subscript, ast.Starred, ast.NamedExpr)):
                stack.append(node.value)
            elif isinstance(node, ast.IfExp):
                stack += [node.body, node.orelse]
            elif isinstance(node, (ast.Name, ast.Attribute)) and index.reference(node) in names:
                return True
            elif isinstance(node, ast.Attribute) and node.attr in _VIEWS:
                stack.append(node.value)
            elif isinstance(node, ast.Call):
                name = last_name(node.func)
                if name in _TAKES_OUT and index.file == self._start.file and spans(node, self._start.line):
                    return True
                if name in _VIEWS:
                    stack += [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else ())]
        return False

    def _given(
        self, index: SourceIndex, call: ast.Call, names: set[Reference]
    ) -> Iterator[tuple[Function, set[Reference]]]:
        """Yield the user's functions that are called with the array, and their parameters that receive it."""
        shared = [self._shares(index, one, names) for one in call.args]
        keywords = [k.arg for k in call.keywords if k.arg and self._shares(index, k.value, names)]
        for where, one in functions_called(index, call, self._files) if any(shared) or keywords else ():
            parameters = [p for p, is_shared in zip(one.parameters, shared, strict=False) if is_shared]
            yield (where, one), {Reference(name, False, one) for name in (*parameters, *keywords)}

    def _returned(self, index: SourceIndex, function: Scope) -> Iterator[tuple[Function, set[Reference]]]:
        """Yield the functions that assign the result of `function`, and the variables that they assign it to."""
        for where, call in calls_of(index, function, self._files):
            names = {where.reference(write.target) for write in where.writes if write.value is call}
            if names - {None}:
                yield (where, where.scopes[call].function), {one for one in names if one is not None}


def _line(index: SourceIndex, node: ast.AST) -> int:
    """Return the line of a node, or of the nearest node around it that has one."""
    while not hasattr(node, "lineno") and node is not index.tree:
        node = index.parents[node]
    return int(getattr(node, "lineno", 0))


def _is_written(write: Write) -> bool:
    """Return whether a write changes the elements of its target."""
    return write.how in ("augment", "out", "array") or (
        write.how == "assign" and isinstance(write.target, ast.Subscript)
    )
