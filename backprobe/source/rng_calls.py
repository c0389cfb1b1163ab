"""Source lines that draw random numbers from a generator whose state a checkpoint does not restore."""

from __future__ import annotations

import ast
import re

from ..records import Site
from .calls import functions_called
from .index import FUNCTIONS, SourceIndex, first_line, index_of, last_name

#: Maximum number of calls from a function to the one that draws, itself included.
MAX_CALL_DEPTH = 3
_HOMES = frozenset({"random", "numpy.random", "np.random"})


def drawn_before(site: Site) -> Site | None:
    """Return the last line of the function of `site`, up to it, that draws from an unsaved random generator.

    Such a generator is Python's, NumPy's, or a separate one (``generator=``). The line may be in a function of the same
    file that is called there.
    """
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    before = [one for one in index.inside(function) if isinstance(one, ast.Call) and one.lineno <= site.line]
    level, seen = [(index, call) for call in sorted(before, key=lambda one: one.lineno)], {function}
    for _ in range(MAX_CALL_DEPTH):
        draws = [(where, call) for where, call in level if _draws_unsaved(where, call)]
        if draws:
            return draws[-1][0].site(draws[-1][1])
        called = dict.fromkeys(one for where, call in level for one in functions_called(where, call, [site.file]))
        calls = [(where, one) for where, inside in called if inside not in seen for one in where.inside(inside)]
        level = [(where, one) for where, one in calls if isinstance(one, ast.Call)]
        seen |= {inside for _, inside in called}
    return None


#: Names of functions of torch that draw random numbers.
_TORCH_DRAWS = re.compile(
    r"rand\w*|dropout\w*|bernoulli_?|multinomial|normal_?|uniform_?|exponential_|poisson|random_?"
)


def draws_inside(file: str, first: int) -> tuple[Site, ...]:
    """Return the line of the function that begins at line `first` of `file`, then its lines that draw random numbers.

    Empty if there is no such function.
    """
    index = index_of(file)
    around = next((node for node in index.of(*FUNCTIONS) if first_line(node) == first), None)
    if around is None:
        return ()
    calls = (node for node in index.walk(around) if isinstance(node, ast.Call))
    draws = (call for call in calls if _TORCH_DRAWS.fullmatch(last_name(call.func)) or _draws_unsaved(index, call))
    lines = sorted({index.site(call) for call in draws}, key=lambda site: site.line)
    return (index.site_at(around.lineno, index.opened[around]), *lines)


def _draws_unsaved(index: SourceIndex, call: ast.Call) -> bool:
    """Return whether `call` draws from a generator whose state a checkpoint does not restore, such as NumPy's."""
    if any(k.arg == "generator" and not isinstance(k.value, ast.Constant) for k in call.keywords):
        return True
    if last_name(call.func) in ("seed", "getstate", "get_state"):
        return False
    if isinstance(call.func, ast.Name):
        return _imported_name(index, call.func).rpartition(".")[0] in _HOMES
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return last_name(owner) in ("rng", "_rng") or (owner is not None and _imported_name(index, owner) in _HOMES)


def _imported_name(index: SourceIndex, node: ast.AST) -> str:
    """Return the full name of a module or of one of its attributes: ``numpy.random`` for ``np.random``; empty if
    unknown.
    """
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    bound = index.holder(node).bound.get(node.id, [])
    alias = next((one for one in bound if isinstance(one, ast.alias)), None)
    if alias is None:
        return "" if bound else ".".join((node.id, *reversed(names)))
    module = getattr(index.parents[alias], "module", None)
    root = f"{module}.{alias.name}" if module else alias.name if alias.asname else node.id
    return ".".join((root, *reversed(names)))
