"""Finds the line that writes into a NumPy array which shares a tensor's memory: torch does not see such writes.

Follows the array in the source code, from the line that took it from the tensor: through names, views and loops over
it, into the user's functions that get it as an argument and out of those that return it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records import Site
from .assignments import WRITE_FIRST, WRITERS, pairs_of
from .dataflow import Function, called_by, function_around, tree_of
from .definitions import last_name
from .frames import Frames
from .sites import site_at


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: Calls and attributes whose result shares memory with their argument.
_VIEWS = _names(
    "numpy asarray asanyarray ascontiguousarray reshape ravel squeeze transpose swapaxes moveaxis expand_dims view T "
    "atleast_1d atleast_2d atleast_3d broadcast_to flat real imag diagonal detach data cpu from_dlpack enumerate zip "
    "reversed iter list tuple"
)
_TAKES_OUT = _names("numpy asarray __array__ from_dlpack asanyarray")
#: Maximum depth of functions into which an array is followed.
DEPTH = 4


def written_through(site: Site, frames: Frames) -> Site | None:
    """Return the first line that writes into an array that the statement at `site` took from a tensor."""
    function = function_around(site)
    if function is None:
        return None
    return _Search(frames.users_files(), site).inside(site.file, function, set(), 0)


class _Search:
    def __init__(self, files: list[str], start: Site) -> None:
        self._files, self._start = files, start
        self._seen: set[tuple[ast.AST, frozenset[str]]] = set()

    def inside(self, file: str, function: Function, names: set[str], depth: int) -> Site | None:
        """Search `function`, in which `names` refer to the array at the start."""
        key = (function, frozenset(names))
        if key in self._seen or depth > DEPTH:
            return None
        self._seen.add(key)
        names, given = set(names), list[tuple[str, Function, set[str]]]()
        for node in _in_order(function):
            written = next((one for one in _written(node) if self._shares(one, names, file)), None)
            if written is not None:
                name = getattr(function, "name", "<module>")
                line = getattr(node, "lineno", 0)
                return site_at(file, line, name)
            for target, value in _assigned(node):
                if self._shares(value, names, file):
                    names |= {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}
            if isinstance(node, ast.Call):
                given += self._given(node, file, function, names)
            elif isinstance(node, ast.Return) and node.value is not None and self._shares(node.value, names, file):
                given += self._returned(getattr(function, "name", ""))
        found = (self.inside(where, one, more, depth + 1) for where, one, more in given)
        return next((one for one in found if one is not None), None)

    def _shares(self, node: ast.AST, names: set[str], file: str) -> bool:
        """Return whether the value of `node` may share the array's memory."""
        if isinstance(node, ast.Name):
            return node.id in names
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self._shares(node.value, names, file)
        if isinstance(node, ast.Attribute):
            return node.attr in _VIEWS and self._shares(node.value, names, file)
        if isinstance(node, ast.IfExp):
            return self._shares(node.body, names, file) or self._shares(node.orelse, names, file)
        if not isinstance(node, ast.Call):
            return False
        at, line = self._start.file == file, self._start.line
        if at and node.lineno <= line <= (node.end_lineno or line) and last_name(node.func) in _TAKES_OUT:
            return True
        value = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return last_name(node.func) in _VIEWS and any(self._shares(one, names, file) for one in (*value, *node.args))

    def _given(
        self, node: ast.Call, file: str, function: Function, names: set[str]
    ) -> Iterator[tuple[str, Function, set[str]]]:
        """Yield the user's functions that are called with the array, and their parameters that receive it."""
        for where, one in called_by(node, file, function, self._files):
            if isinstance(one, ast.Module):
                continue
            parameters = [a.arg for a in one.args.args]
            parameters = parameters[1:] if parameters[:1] == ["self"] else parameters
            mine = {p for p, value in zip(parameters, node.args, strict=False) if self._shares(value, names, file)}
            mine |= {k.arg for k in node.keywords if k.arg and self._shares(k.value, names, file)}
            if mine:
                yield where, one, mine

    def _returned(self, name: str) -> Iterator[tuple[str, Function, set[str]]]:
        """Yield the functions that assign the result of the function `name`, and the variables that they assign it
        to.
        """
        for file in self._files:
            for node in ast.walk(tree_of(file) or ast.Module([], [])):
                value = node.value if isinstance(node, ast.Assign) else None
                if isinstance(node, ast.Assign) and isinstance(value, ast.Call) and last_name(value.func) == name:
                    function = function_around(Site(file, node.lineno, "", ""))
                    names = {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
                    if function is not None:
                        yield file, function, names


def _in_order(function: Function) -> list[ast.AST]:
    """Return the nodes of a function in line order, without those of nested functions."""
    found: list[ast.AST] = []
    stack: list[ast.AST] = [*function.body]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if hasattr(node, "lineno") or isinstance(node, ast.comprehension):
            found.append(node)
        stack += ast.iter_child_nodes(node)
    return sorted(found, key=lambda one: getattr(one, "lineno", None) or one.target.lineno)  # type: ignore[attr-defined]


def _assigned(node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """Return the targets and the value of an assignment."""
    if isinstance(node, ast.Assign):
        return [(target, value) for target, value in pairs_of(node) if not isinstance(target, ast.Subscript)]
    if isinstance(node, (ast.For, ast.comprehension)):
        return [(node.target, node.iter)]
    if isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        return [(node.target, node.value)]
    return []


def _written(node: ast.AST) -> list[ast.AST]:
    """Return the expressions that a statement or a call writes into."""
    if isinstance(node, ast.AugAssign):
        return [node.target]
    if isinstance(node, ast.Assign):
        return [t.value for t, _ in pairs_of(node) if isinstance(t, ast.Subscript)]
    if not isinstance(node, ast.Call):
        return []
    out: list[ast.AST] = [k.value for k in node.keywords if k.arg == "out"]
    if isinstance(node.func, ast.Attribute) and node.func.attr in WRITERS:
        out.append(node.func.value)
    if last_name(node.func) in WRITE_FIRST:
        out += node.args[:1]
    return out
