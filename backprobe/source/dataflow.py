"""Finds the line that may have produced a non-finite value, from the user's source code alone.

Goes back through assignments to the inputs of a statement, and into the user's functions and modules that it calls.
"""

from __future__ import annotations

import ast
import linecache
from collections import deque
from collections.abc import Iterator
from functools import lru_cache

from ..records import Site
from .assignments import pairs_of
from .frames import Frames
from .sites import site_at

#: Calls that are non-finite for some finite input: immediately, or if a value is large or a set is empty.
_WORDS = (
    "sqrt rsqrt log log2 log10 log1p std var std_mean var_mean reciprocal div divide true_divide div_ pow float_power "
    "acos asin arccos arcsin acosh atanh logit erfinv lgamma xlogy sqrt_ log_ rsqrt_ pow_ inverse inv solve cholesky "
    "svd eigh lstsq pinv",
    "exp exp_ expm1 sinh cosh tan softmax log_softmax mean nanmean cumprod prod",
)
_SINGULAR = tuple(frozenset(words.split()) for words in _WORDS)
#: Maximum depth of functions that are followed from one statement, and of statements in all.
MAX_DEPTH, MAX_STATEMENTS = 3, 200

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


def singular_before(site: Site, frames: Frames, variable: str = "") -> Site | None:
    """Return the line that may have produced the non-finite input of `site`: the nearest call of a function with
    singularities.

    :param variable: the variable of the function of `site` that is known to be non-finite.
    """
    files = [site.file, *(file for file in frames.users_files() if file != site.file)]
    function = function_around(site)
    if function is None:
        return None
    found: list[tuple[int, int, Site]] = []
    queue: deque[tuple[str, Function, list[ast.AST], int, int]] = deque()
    if variable:
        assigned = _last_assigned(function, variable, site.line + 1)
        queue += [(site.file, function, [one], line, 0) for one, line in assigned]
    else:
        queue.append((site.file, function, _at(function, site.line), site.line, 0))
    seen: set[ast.AST] = set()
    while queue and len(seen) < MAX_STATEMENTS:
        file, function, nodes, line, depth = queue.popleft()
        for node in (one for start in nodes for one in ast.walk(start)):
            if node in seen:
                continue
            seen.add(node)
            level = _level(node)
            if level is not None:
                name = getattr(function, "name", "<module>")
                at = getattr(node, "lineno", line)
                level += 2 * (file == site.file and at == site.line)  # inputs of that line are computed before it
                found.append((level, len(found), site_at(file, at, name)))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                assigned = _last_assigned(function, node.id, line)
                assigned = assigned or _last_assigned(tree_of(file) or function, node.id, line)
                queue += [(file, function, [value], at, depth) for value, at in assigned]
                if not assigned and depth < MAX_DEPTH:
                    queue += [(*one, depth + 1) for one in _arguments(function, node.id, file, files)]
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                queue += [
                    (file, method, [one], at, depth) for method, one, at in _attribute_writes(file, function, node.attr)
                ]
            if isinstance(node, ast.Call) and depth < MAX_DEPTH:
                for where, called in called_by(node, file, function, files):
                    returned = [one for one in ast.walk(called) if isinstance(one, ast.Return) and one.value]
                    queue += [(where, called, [one], one.lineno, depth + 1) for one in returned]
    return min(found, key=lambda one: one[:2])[2] if found else None


def is_singular(site: Site) -> bool:
    """Return whether a line computes a value that is non-finite, or has no finite derivative, for some finite input."""
    function = function_around(site)
    below = (node for one in (_at(function, site.line) if function is not None else ()) for node in ast.walk(one))
    return any(_level(node) == 0 for node in below)


def _level(node: ast.AST) -> int | None:
    """Return how likely `node` produces a non-finite value: 0 for likely, ``None`` for unlikely."""
    if isinstance(node, ast.BinOp):
        constant = isinstance(node.right, ast.Constant) or _name(node.right) in ("len", "size", "numel", "shape")
        if isinstance(node.op, ast.Div) and not constant:
            return 0
        power = node.right if isinstance(node.op, ast.Pow) else None
        if isinstance(power, ast.UnaryOp) or (isinstance(power, ast.Constant) and isinstance(power.value, float)):
            return 0
    if isinstance(node, ast.Call):
        name = _name(node)
        return next((level for level, names in enumerate(_SINGULAR) if name in names), None)
    return None


def _name(node: ast.AST) -> str:
    """Return the last name of the called or read expression."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@lru_cache(64)
def tree_of(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None


def function_around(site: Site) -> Function | None:
    """Return the innermost function around a line; the whole file for a line outside of functions."""
    tree = tree_of(site.file)
    found: Function | None = tree
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if node.lineno <= site.line <= (node.end_lineno or 0):
            found = node  # nested functions come later
    return found


def _statements(function: Function, loops: bool = False) -> Iterator[ast.stmt]:
    """Yield the simple statements of a function, without those of nested functions; with ``loops``, also `for`
    statements.
    """
    stack: list[ast.AST] = list(reversed(function.body))
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.stmt) and (not hasattr(node, "body") or (loops and isinstance(node, ast.For))):
            yield node
        if hasattr(node, "body") and isinstance(node, (ast.stmt, ast.excepthandler, ast.match_case)):
            stack += reversed([one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.expr)])


def _at(function: Function, line: int) -> list[ast.AST]:
    return [one for one in _statements(function) if one.lineno <= line <= (one.end_lineno or 0)]


def _last_assigned(function: Function, name: str, before: int) -> list[tuple[ast.AST, int]]:
    """Return the last value assigned to `name` before a line.

    If there is none, return the last of all, from the previous loop iteration.
    """
    found: list[tuple[ast.AST, int]] = []
    for one in _statements(function, loops=True):
        targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
        flat = [t for target in targets if target is not None for t in getattr(target, "elts", [target])]
        value = getattr(one, "value", getattr(one, "iter", None))
        if value is not None and any(isinstance(t, (ast.Name, ast.Subscript)) and _name(t) == name for t in flat):
            found.append((one if isinstance(one, ast.AugAssign) else value, one.lineno))
    earlier = [one for one in found if one[1] < before]
    return (earlier or found)[-1:]


def _attribute_writes(file: str, function: Function, name: str) -> Iterator[tuple[Function, ast.AST, int]]:
    """Yield the values that methods of the class assign or add to ``self.name``: the method, the value, its line."""
    cls = _class_of(file, function)
    for method in cls.body if cls is not None else ():
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) or method.name == "__init__":
            continue
        for one in _statements(method):
            call = getattr(one, "value", None)
            if isinstance(one, ast.Assign):
                values = [
                    v for t, v in pairs_of(one) if isinstance(t, (ast.Attribute, ast.Subscript)) and _name(t) == name
                ]
            elif isinstance(one, ast.AugAssign):
                values = [one.value] if _name(one.target) == name else []
            elif isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
                values = list(call.args) if _name(call.func.value) == name else []
            else:
                continue
            yield from ((method, value, one.lineno) for value in values)


def called_by(node: ast.Call, file: str, function: Function, files: list[str]) -> Iterator[tuple[str, Function]]:
    """Yield the function, method or forward of a module, in the user's code, that `node` calls."""
    target = node.func
    owner = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    name = _name(target) if isinstance(target, (ast.Name, ast.Attribute)) else ""
    around = _class_of(file, function) if owner else None
    if around is not None:
        method = _method(around, name)
        if method is not None:
            yield file, method
            return
        for makes in ast.walk(around):
            for place, made in pairs_of(makes) if isinstance(makes, ast.Assign) else ():
                if isinstance(place, ast.Attribute) and place.attr == name and isinstance(made, ast.Call):
                    yield from _forward(_name(made.func), files)
        return
    for where in files:
        for one in ast.walk(tree_of(where) or ast.Module([], [])):
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name == name:
                yield where, one
                return
            if isinstance(one, ast.ClassDef) and one.name == name:  # a set of data
                gives = _method(one, "__getitem__") or _method(one, "__iter__")
                if gives is not None:
                    yield where, gives
                return


def _arguments(
    function: Function, name: str, file: str, files: list[str]
) -> Iterator[tuple[str, Function, list[ast.AST], int]]:
    """Yield the arguments for the parameter `name` at the calls of `function`.

    A call of a module is found by the variable that holds an instance of its class.
    """
    if isinstance(function, ast.Module):
        return
    parameters = [one.arg for one in function.args.args]
    if name not in parameters:
        return
    at, owner = parameters.index(name) - (parameters[:1] == ["self"]), _class_of(file, function)
    called = {function.name}
    if owner is not None and function.name in ("forward", "__call__"):
        made = (one for where in files for one in ast.walk(tree_of(where) or ast.Module([], [])))
        called = {
            _name(place)
            for one in made
            if isinstance(one, ast.Assign)
            for place, value in pairs_of(one)
            if isinstance(value, ast.Call) and _name(value.func) == owner.name
        }
    for where in files:
        for one in ast.walk(tree_of(where) or ast.Module([], [])):
            if not isinstance(one, ast.Call) or _name(one.func) not in called:
                continue
            around = function_around(Site(where, one.lineno, "", ""))
            given = [k.value for k in one.keywords if k.arg == name] or one.args[at : at + 1]
            if given and around is not None:
                yield where, around, list(given), one.lineno


def _class_of(file: str, function: Function) -> ast.ClassDef | None:
    tree = tree_of(file)
    classes = (one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)) if tree is not None else ()
    return next((one for one in classes if function in one.body), None)


def _method(cls: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((one for one in cls.body if isinstance(one, ast.FunctionDef) and one.name == name), None)


def _forward(cls: str, files: list[str]) -> Iterator[tuple[str, Function]]:
    for where in files:
        for one in ast.walk(tree_of(where) or ast.Module([], [])):
            if isinstance(one, ast.ClassDef) and one.name == cls:
                forward = _method(one, "forward")
                if forward is not None:
                    yield where, forward
                return
