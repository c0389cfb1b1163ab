"""Lines that leave a loop, or skip the rest of its body, under a condition, and conditions that decide whether a line
runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ..records import Site
from .calls import calls_of
from .frames import Frames
from .index import LOOPS, MAX_INDEXED_FILES, Scope, SourceIndex, index_of, indexes, last_name, spans, text_of

_CONDITIONS = (ast.If, ast.ExceptHandler, ast.match_case)
_JUMPS = (ast.Continue, ast.Break, ast.Return)
#: Calls in the head of a loop that give the same order in every process with the same model.
_SAME_ORDER = frozenset(
    {"range", "enumerate", "zip", "tqdm", "trange", "parameters", "named_parameters", "modules", "named_modules"}
)
#: Functions that test for NaN or Inf.
_CHECKS = frozenset({"isnan", "isinf", "isfinite"})
#: Maximum number of call levels that are followed from a line up, and of steps from a name to the names it depends on.
DEPTH = 3

_Jump = ast.Continue | ast.Break | ast.Return


def branches_around(places: Iterable[tuple[str, int]]) -> tuple[Site, ...]:
    """Return the conditional `continue`, `break` and `return` statements of the loops around `places`, in source order.

    A place is a file and a line; a condition is an `if`, `except` or `case`.
    """
    lines: dict[str, set[int]] = {}
    for file, line in places:
        lines.setdefault(file, set()).add(line)
    found = {
        index.site(jump)
        for index, some in ((index_of(file), some) for file, some in lines.items())
        for loop, jump in _jumps(index)
        if any(spans(loop, line) for line in some)
    }
    return _in_order(found)


def _in_order(sites: Iterable[Site]) -> tuple[Site, ...]:
    """Return sites sorted by file and line."""
    return tuple(sorted(sites, key=lambda one: (one.file, one.line)))


@lru_cache(MAX_INDEXED_FILES)
def _jumps(index: SourceIndex) -> tuple[tuple[ast.AST, _Jump], ...]:
    """Return each loop with the statements in its body that leave it, or skip the rest, under a condition."""
    found: list[tuple[ast.AST, _Jump]] = []
    for jump in index.of(*_JUMPS):
        is_conditional, inner = False, jump
        for node in index.around(jump):
            is_conditional = is_conditional or isinstance(node, _CONDITIONS)
            if isinstance(node, LOOPS) and inner in node.body:
                if is_conditional:
                    found.append((node, jump))
                if not isinstance(jump, ast.Return):
                    break
            inner = node  # type: ignore[assignment]
    return tuple(found)


def branch_conditions(frames: Frames, site: Site) -> tuple[Site, ...]:
    """Return the lines that decide whether the line `site` executes.

    These are an `if` around it, conditions under which variables that it reads are assigned, and statements before it
    that leave its function or loop under a condition. If there are none, the lines that call its function are examined
    in the same way. If nothing decides whether the line executes, returns the lines that decide in which order: the
    loop that computes the arguments of the line, or of a call of its function.
    """
    index = index_of(site.file)
    lines = [(index, index.function_at(site.line, site.function), site.line)]
    loops = set[Site]()
    for _ in range(DEPTH):
        found = {way for place in lines for way in _ways(*place)}
        if found:
            return _in_order(found | loops)
        loops = loops or {place[0].site(loop) for place in lines for loop in _ordered(*place)}
        lines = [at for index, function, _ in lines for at in _calling_lines(frames, index, function)]
    return _in_order(loops)


def condition_of(site: Site) -> Site | None:
    """Return the line of the condition of a `continue`, `break` or `return` at `site`; ``None`` if it is
    the same line.
    """
    index = index_of(site.file)
    for jump in reversed([node for node in index.by_line.get(site.line, ()) if isinstance(node, _JUMPS)]):
        condition = next((node for node in index.around(jump) if isinstance(node, _CONDITIONS)), None)
        head = condition.pattern if isinstance(condition, ast.match_case) else condition
        if head is not None:
            return index.site(head) if head.lineno != site.line else None
    return None


def nonfinite_checks(frames: Frames) -> tuple[Site, ...]:
    """Return the lines of the user's code whose condition calls ``isnan``, ``isinf`` or ``isfinite``."""
    found = {
        index.site(node)
        for index in indexes(frames.users_files(), "isnan", "isinf", "isfinite")
        for node in index.of(ast.If)
        if any(isinstance(one, ast.Call) and last_name(one.func) in _CHECKS for one in index.walk(node.test))
    }
    return _in_order(found)


def loop_of(site: Site) -> Site | None:
    """Return the line of the innermost `for` around `site` that assigns variables which the line reads; ``None`` if
    none.
    """
    index = index_of(site.file)
    found = _feeding(index, index.function_at(site.line, site.function), site.line)
    return index.site(found[-1]) if found else None


def _ways(index: SourceIndex, function: Scope, line: int) -> Iterator[Site]:
    """Yield the lines in a function that decide whether one of its lines executes."""
    if function is index.module:
        return
    for node in index.inside(function):
        if isinstance(node, (ast.If, ast.IfExp)) and spans(node, line):
            yield index.site(node)
            yield from map(index.site, _deciding(index, function, node.test, line))
        elif isinstance(node, ast.Return) and node.lineno < line and _is_conditional(index, node):
            yield index.site(node)
    # A statement that ends a loop prevents later iterations of all of its lines, including those before it.
    for loop, jump in _jumps(index):
        decides = jump.lineno < line or (jump.lineno > line and not isinstance(jump, ast.Continue))
        if decides and index.scopes[jump].function is function and spans(loop, line):
            yield index.site(jump)


def _is_conditional(index: SourceIndex, node: ast.AST) -> bool:
    """Return whether a node is inside an `if`, `except` or `case` of its function."""
    return any(isinstance(one, _CONDITIONS) for one in index.around(node))


def _feeding(index: SourceIndex, function: Scope, line: int) -> list[ast.For | ast.AsyncFor]:
    """Return the loops around a line whose variables it reads, outer ones first."""
    if function is index.module:
        return []
    inside = index.inside(function)
    nodes = [node for node in inside if getattr(node, "lineno", 0) == line]
    read = index.variables(nodes, ast.Load)
    loops = [node for node in inside if isinstance(node, (ast.For, ast.AsyncFor)) and node.lineno < line]
    return [loop for loop in loops if spans(loop, line) and index.variables([loop.target], ast.Store) & read]


def _ordered(index: SourceIndex, function: Scope, line: int) -> Iterator[ast.AST]:
    """Yield the loops around a line, whose variables it reads, that iterate over the result of a sort or selection."""
    for loop in _feeding(index, function, line):
        calls = [one for one in index.walk(loop.iter) if isinstance(one, ast.Call)]
        if any(last_name(one.func) not in _SAME_ORDER for one in calls):
            yield loop


def _deciding(index: SourceIndex, function: Scope, test: ast.AST, line: int) -> Iterator[ast.AST]:
    """Yield the conditions, other than those around `line`, under which variables that `test` reads were assigned."""
    names = index.variables([test], ast.Load)
    for _ in range(DEPTH):
        more = set[tuple[Scope, str]]()
        for node in index.inside(function) if names else ():
            if isinstance(node, (ast.For, ast.AsyncFor)) and index.variables([node.target], ast.Store) & names:
                more |= index.variables([node.iter], ast.Load)
            body = [*node.body, *node.orelse] if isinstance(node, ast.If) and not spans(node, line) else []
            if index.variables(body, ast.Store) & names:
                yield node
        names = more - names


def _calling_lines(frames: Frames, index: SourceIndex, function: Scope) -> list[tuple[SourceIndex, Scope, int]]:
    """Return the calls in the user's code that may run a function: the index of the file, the calling function, the
    line.
    """
    if function is index.module:
        return []
    owner = function.owner
    if owner is not None and any("Function" in text_of(base) for base in owner.node.bases):  # type: ignore[attr-defined]
        wanted = f"{owner.name}.apply"  # of autograd
        found = [(index, one) for one in index.of(ast.Call) if f".{text_of(one.func)}".endswith(f".{wanted}")]
    else:
        found = calls_of(index, function, frames.users_files())
    return [(where, where.scopes[call].function, call.lineno) for where, call in found]
