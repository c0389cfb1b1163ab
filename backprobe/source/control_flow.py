"""Lines that leave a loop, or skip the rest of its body, under a condition, and conditions that decide whether a line
runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ..records import Site
from .definitions import last_name, syntax_nodes
from .frames import Frames
from .sites import site_at

_CONDITIONS = (ast.If, ast.ExceptHandler, ast.match_case)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_JUMPS = (ast.Continue, ast.Break, ast.Return)
#: Calls in the head of a loop that give the same order in every process with the same model.
_ALIKE = frozenset(
    {"range", "enumerate", "zip", "tqdm", "trange", "parameters", "named_parameters", "modules", "named_modules"}
)
_GIVES = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)
#: Maximum number of call levels that are followed from a line up, and of steps from a name to the names it depends on.
DEPTH = 3
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def branches_around(places: Iterable[tuple[str, int]]) -> tuple[Site, ...]:
    """Return the conditional `continue`, `break` and `return` statements of the loops around `places`, in source order.

    A place is a file and a line; a condition is an `if`, `except` or `case`.
    """
    lines: dict[str, set[int]] = {}
    for file, line in places:
        lines.setdefault(file, set()).add(line)
    found = {
        (file, line): function
        for file, some in lines.items()
        for first, last, line, function, _ in _jumps(file)
        if any(first <= one <= last for one in some)
    }
    return tuple(site_at(file, line, function) for (file, line), function in sorted(found.items()))


@lru_cache(256)
def _jumps(file: str) -> tuple[tuple[int, int, int, str, bool], ...]:
    """Return the data of each such statement: the loop, its own line, its function, and whether it ends the loop.

    The loop is given by its first and last line.
    """
    found = []
    for node, function in syntax_nodes(file):
        if isinstance(node, _LOOPS):
            last = node.end_lineno or node.lineno
            goes_on = {one.lineno for one in ast.walk(node) if isinstance(one, ast.Continue)}
            found += [(node.lineno, last, line, function, line not in goes_on) for line in _leave(node.body, False)]
    return tuple(found)


def _leave(body: Iterable[ast.AST], under: bool, inner: bool = False) -> Iterator[int]:
    """Yield the lines of statements that leave a loop or its body under a condition.

    :param under: whether `body` is under a condition.
    :param inner: whether `body` is in an inner loop, to which `continue` and `break` then refer.
    """
    for node in body:
        if isinstance(node, _SCOPES):
            continue
        if under and (isinstance(node, ast.Return) or (isinstance(node, (ast.Continue, ast.Break)) and not inner)):
            yield node.lineno  # type: ignore[attr-defined]
        loop = inner or isinstance(node, _LOOPS)
        yield from _leave(ast.iter_child_nodes(node), under or isinstance(node, _CONDITIONS), loop)


def branch_conditions(frames: Frames, site: Site) -> tuple[Site, ...]:
    """Return the lines that decide whether the line `site` executes.

    These are an `if` around it, conditions under which variables that it reads are assigned, and statements before it
    that leave its function or loop under a condition. If there are none, the lines that call its function (by name) are
    examined in the same way. If nothing decides whether the line executes, returns the lines that decide in which
    order: the loop that computes the arguments of the line, or of a call of its function.
    """
    lines, loops = [(site.file, site.line)], set[tuple[str, int, str]]()
    for _ in range(DEPTH):
        found = {way for file, line in lines for way in _ways(file, line)}
        if found:
            return tuple(site_at(*way) for way in sorted(found | loops))
        loops = loops or {loop for file, line in lines for loop in _ordered(file, line)}
        lines = [at for file, line in lines for at in _calls_of(frames, file, line)]
    return tuple(site_at(*loop) for loop in sorted(loops))


def condition_of(site: Site) -> Site | None:
    """Return the line of the condition of a `continue`, `break` or `return` at `site`, if it is on another line."""
    line, function = _conditions(site.file).get(site.line, (site.line, ""))
    return site_at(site.file, line, function) if line != site.line else None


@lru_cache(256)
def _conditions(file: str) -> dict[int, tuple[int, str]]:
    """Return for each line of such a statement the line of the innermost condition around it, and the function."""
    found = dict[int, tuple[int, str]]()
    for node, function in syntax_nodes(file):  # outer ones come first
        if isinstance(node, _CONDITIONS):
            head = (node.pattern if isinstance(node, ast.match_case) else node).lineno
            found |= {one.lineno: (head, function) for one in _inside(node) if isinstance(one, _JUMPS)}
    return found


@lru_cache(256)
def _function_at(file: str, line: int) -> tuple[ast.AST, ast.AST | None] | None:
    """Return the innermost function around a line, and the class of which it is a method."""
    found: tuple[ast.AST, ast.AST | None] | None = None
    for node, _ in syntax_nodes(file):  # outer ones come first
        if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or 0):
            found = node, None
    for node, _ in syntax_nodes(file) if found is not None else ():
        if isinstance(node, ast.ClassDef) and found is not None and any(one is found[0] for one in node.body):
            return found[0], node
    return found


def _ways(file: str, line: int) -> list[tuple[str, int, str]]:
    around = _function_at(file, line)
    if around is None:
        return []
    function = around[0]
    assert isinstance(function, _FUNCTIONS)
    found = []
    for node in _inside(function):
        if isinstance(node, (ast.If, ast.IfExp)) and _spans(node, line):
            found += [*_deciding(function, node.test, line), node.lineno]
    found += [at for at in _leave(function.body, False, True) if at < line]  # these return
    # A statement that ends a loop prevents later iterations of all of its lines, including those before it.
    found += [
        at
        for first, last, at, name, ends in _jumps(file)
        if name == function.name and first <= line <= last and (at < line or (ends and at > line))
    ]
    return [(file, at, function.name) for at in dict.fromkeys(found)]


def _spans(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", None) or 0)


def loop_of(site: Site) -> Site | None:
    """Return the innermost `for` around a line that assigns variables which the line reads."""
    found = _feeding(site.file, site.line)
    return site_at(site.file, found[-1][0].lineno, found[-1][1]) if found else None


def _feeding(file: str, line: int) -> list[tuple[ast.For | ast.AsyncFor, str]]:
    """Return the loops around a line whose variables it reads, outer ones first, and their function."""
    around = _function_at(file, line)
    if around is None:
        return []
    function = around[0]
    assert isinstance(function, _FUNCTIONS)
    reads = {name for node in _inside(function) if getattr(node, "lineno", 0) == line for name in _read(node)}
    return [
        (node, function.name)
        for node in _inside(function)
        if isinstance(node, (ast.For, ast.AsyncFor)) and node.lineno < line <= (node.end_lineno or 0)
        if _stored(node.target) & reads
    ]


def _ordered(file: str, line: int) -> list[tuple[str, int, str]]:
    """Return the loops around a line, whose variables it reads, that iterate over the result of a sort or selection."""
    found = []
    for loop, function in _feeding(file, line):
        calls = [one for one in ast.walk(loop.iter) if isinstance(one, ast.Call)]
        if any(last_name(one.func) not in _ALIKE for one in calls):
            found.append((file, loop.lineno, function))
    return found


def _deciding(function: ast.AST, test: ast.AST, line: int) -> list[int]:
    """Return the conditions, other than those around `line`, under which names that `test` reads were assigned."""
    names, found = _read(test), list[int]()
    for _ in range(DEPTH):
        more: set[str] = set()
        for node in _inside(function):
            if isinstance(node, _LOOPS) and not isinstance(node, ast.While) and _stored(node.target) & names:
                more |= _read(node.iter)
            if isinstance(node, ast.If) and not _spans(node, line):
                given = (one for part in (*node.body, *node.orelse) for one in ast.walk(part))
                if any(isinstance(one, _GIVES) and _stored(one) & names for one in given):
                    found.append(node.lineno)
        names = more - names
    return found


def _stored(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _read(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of nested functions."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, _SCOPES):
            yield node
            yield from _inside(node)


def _calls_of(frames: Frames, file: str, line: int) -> list[tuple[str, int]]:
    around = _function_at(file, line)
    if around is None:
        return []
    function, owner = around
    assert isinstance(function, _FUNCTIONS)
    if isinstance(owner, ast.ClassDef) and any("Function" in ast.unparse(base) for base in owner.bases):
        wanted = f"{owner.name}.apply"  # of autograd
        own = [n for n, _ in syntax_nodes(file) if isinstance(n, ast.Call) and ast.unparse(n.func).endswith(wanted)]
        return [(file, node.lineno) for node in own]
    return [
        (one, node.lineno)
        for one in frames.users_files()
        for node, _ in syntax_nodes(one)
        if isinstance(node, ast.Call) and last_name(node.func) == function.name
    ]
