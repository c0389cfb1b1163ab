"""Finds the line that may have produced a non-finite value, from the user's source code alone.

Goes back through assignments to the inputs of a statement, and into the user's functions and modules that it calls.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import chain

from ..records import Site
from .calls import calls_of, functions_called
from .frames import Frames
from .index import FUNCTIONS, Reference, Scope, SourceIndex, index_of, spans
from .writes import Write

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

#: Writes that give a variable a value.
_VALUED = frozenset(("assign", "augment", "loop", "with", "case"))
#: Expressions of a function that are followed: the file, the function, the expressions, their line, the call depth.
_Step = tuple[SourceIndex, Scope, list[ast.AST], int, int]


def singular_before(site: Site, frames: Frames, variable: str = "") -> Site | None:
    """Return the line that may have made the input of `site` non-finite: the nearest with an operation that can.

    Such are divisions, logarithms and others that are non-finite for some finite input. ``None`` if none is found.

    :param variable: the variable of the function of `site` that is known to be non-finite.
    """
    files = [site.file, *(file for file in frames.users_files() if file != site.file)]
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    found: list[tuple[int, int, Site]] = []
    queue: deque[_Step] = deque()
    if variable:
        assigned = _last_assigned(index, function, Reference(variable, False, function.holder(variable)), site.line + 1)
        queue += [(index, function, [value], line, 0) for value, line in assigned]
    else:
        queue.append((index, function, _statements_at(index, function, site.line), site.line, 0))
    seen: set[ast.AST] = set()
    while queue and len(seen) < MAX_STATEMENTS:
        index, function, nodes, line, depth = queue.popleft()
        for node in (one for start in nodes for one in ast.walk(start) if one in index.scopes):
            if node in seen:
                continue
            seen.add(node)
            level = _level(node)
            if level is not None:
                place = index.site(node)
                # The inputs of the line are computed before it.
                level += 2 * ((place.file, place.line) == (site.file, site.line))
                found.append((level, len(found), place))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                holder = index.holder(node)
                assigned = _last_assigned(index, function, Reference(node.id, False, holder), line)
                queue += [(index, holder.function, [value], at, depth) for value, at in assigned]
                if not assigned and depth < MAX_DEPTH:
                    queue += _arguments(index, holder, node.id, files, depth + 1)
            elif isinstance(node, ast.Attribute) and (cls := index.class_of(node.value)) is not None:
                queue += _attribute_values(index, Reference(node.attr, True, cls), depth)
            elif isinstance(node, ast.Call) and depth < MAX_DEPTH:
                for where, called in functions_called(index, node, files):
                    results = (_result(one) for one in where.exits(called))
                    queue += [(where, called, [one], one.lineno, depth + 1) for one in results if one is not None]
    return min(found, key=lambda one: one[:2])[2] if found else None


def is_singular(site: Site) -> bool:
    """Return whether a line computes a value that is non-finite, or has no finite derivative, for some finite input."""
    index = index_of(site.file)
    statements = _statements_at(index, index.function_at(site.line, site.function), site.line)
    return any(_level(node) == 0 for one in statements for node in index.walk(one))


def _level(node: ast.AST) -> int | None:
    """Return how likely an expression gives a non-finite value: 0 is the likeliest; ``None`` if it hardly does."""
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


def _result(node: ast.AST) -> ast.expr | None:
    """Return the expression that a function returns or yields at a node."""
    return node.body if isinstance(node, ast.Lambda) else node.value  # type: ignore[attr-defined, no-any-return]


def _statements_at(index: SourceIndex, function: Scope, line: int) -> list[ast.AST]:
    """Return the simple statements of a function that include a line."""
    simple = (one for one in index.inside(function) if isinstance(one, ast.stmt) and not hasattr(one, "body"))
    return [one for one in simple if spans(one, line)]


def _last_assigned(index: SourceIndex, function: Scope, variable: Reference, before: int) -> list[tuple[ast.AST, int]]:
    """Return the last value assigned to a variable before a line, in the function or else around it, with its line.

    If there is none, return the last of all, from the previous loop iteration. Empty if nothing assigns it.
    """
    writes = index.writes_by_reference.get(variable, [])
    at = bisect_left(writes, before, key=lambda write: write.line)
    for is_inside in (True, False):
        for write in map(writes.__getitem__, chain(range(at - 1, -1, -1), range(len(writes) - 1, at - 1, -1))):
            if write.how in _VALUED and (not is_inside or index.scopes[write.node].function is function):
                return [(_given(write), write.line)]
    return []


def _given(write: Write) -> ast.AST:
    """Return the expression that a write gives to its target: for ``+=`` the whole statement."""
    return write.node if write.how == "augment" or write.value is None else write.value


def _attribute_values(index: SourceIndex, attribute: Reference, depth: int) -> Iterator[_Step]:
    """Yield the values that methods of a class, other than ``__init__``, assign or add to an attribute of ``self``."""
    for write in index.writes_by_reference.get(attribute, ()):
        method = index.scopes[write.node].function
        if method.name != "__init__":
            if write.how in ("assign", "augment") and write.value is not None:
                yield index, method, [write.value], write.line, depth
            elif write.how == "in-place" and isinstance(write.node, ast.Call):
                yield index, method, list(write.node.args), write.line, depth


def _arguments(index: SourceIndex, function: Scope, name: str, files: list[str], depth: int) -> Iterator[_Step]:
    """Yield the arguments that calls of `function` in the user's code give for its parameter `name`."""
    parameters, bound = function.parameters, function.bound.get(name, ())
    if not isinstance(function.node, FUNCTIONS) or not any(isinstance(one, ast.arg) for one in bound):
        return
    at = parameters.index(name) if name in parameters else len(parameters)
    for where, call in calls_of(index, function, files):
        given = [k.value for k in call.keywords if k.arg == name] or call.args[at : at + 1]
        if given:
            yield where, where.scopes[call].function, list(given), call.lineno, depth
