"""Source lines that draw random numbers from a generator whose state a checkpoint does not restore."""

from __future__ import annotations

import ast
import re

from ..records import Site
from .definitions import last_name, syntax_nodes
from .sites import site_at

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_HOMES = frozenset({"random", "numpy.random", "np.random"})


def drawn_before(site: Site) -> Site | None:
    """Return the last line of the function of `site`, up to it, that draws from an unsaved random generator.

    Such a generator is Python's, NumPy's, or a separate one (``generator=``). The line may be in a function of the same
    file that is called there.
    """
    draws: dict[str, int] = {}
    calls: list[tuple[int, str]] = []
    nodes = syntax_nodes(site.file)
    imported = {
        name.asname or name.name
        for node, _ in nodes
        if isinstance(node, ast.ImportFrom) and node.module in _HOMES
        for name in node.names
    }
    for node, function in nodes:
        if not isinstance(node, ast.Call):
            continue
        if _draws(node, imported):
            if function != site.function or node.lineno <= site.line:
                draws[function] = max(draws.get(function, 0), node.lineno)
        elif function == site.function and node.lineno <= site.line:
            calls.append((node.lineno, last_name(node.func)))
    called = max(((line, name) for line, name in calls if name in draws), default=(0, ""))[1]
    function = site.function if site.function in draws else called
    if function not in draws:
        return None
    line = draws[function]
    return site_at(site.file, line, function)


#: Names of calls that draw random numbers.
_DRAWS = re.compile(r"rand\w*|dropout\w*|bernoulli_?|multinomial|normal_?|uniform_?|exponential_|poisson|random_?")


def draws_inside(file: str, first: int) -> tuple[Site, ...]:
    """Return the line of the function that begins at line `first` of `file`, and its lines that draw random numbers."""
    nodes = syntax_nodes(file)
    around = next((n for n, _ in nodes if isinstance(n, _FUNCTIONS) and _begins(n) == first), None)
    if around is None:
        return ()
    lines = {
        (node.lineno, function)
        for node, function in nodes
        if isinstance(node, ast.Call)
        and around.lineno <= node.lineno <= (around.end_lineno or 0)
        and (_DRAWS.fullmatch(last_name(node.func)) or _draws(node, set()))
    }
    return tuple(site_at(file, line, name) for line, name in ((around.lineno, around.name), *sorted(lines)))


def _begins(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


def _draws(call: ast.Call, imported: set[str]) -> bool:
    if any(k.arg == "generator" and not isinstance(k.value, ast.Constant) for k in call.keywords):
        return True
    func = call.func
    if isinstance(func, ast.Name):
        return func.id in imported
    if not isinstance(func, ast.Attribute) or func.attr in ("seed", "getstate", "get_state"):
        return False
    home = ast.unparse(func.value)
    return home in _HOMES or home.rpartition(".")[2] in ("rng", "_rng", *imported)
