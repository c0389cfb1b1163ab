"""Source lines that keep a reference to the memory of parameters, to be compared with them later."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from ..records import Site
from .index import SourceIndex, container, index_of, indexes, last_name, spans

#: Attributes and methods that give the memory of a tensor, or of all of a module; and those that give the parameters.
_ALIASES = frozenset(("data", "detach", "state_dict"))
_PARAMETERS = frozenset(("parameters", "named_parameters", "copy"))
#: Parts of the names of functions that make a copy, or other tensors.
_COPIES = ("clone", "deepcopy", "_like", "tensor", "vector", "new_")
#: Maximum number of lines.
MAX_LINES = 3


def keeping_lines(files: Iterable[str], running: Sequence[Site]) -> list[Site]:
    """Return the likeliest lines that kept a reference without a copy, which the first of the lines `running` compares.

    These are assignments of ``p.data``, ``p.detach()`` or ``state_dict()``, or else of parameters, to a name that the
    comparing line depends on, or in a function from which such a name gets its value.

    :param running: the user's lines that ran, the innermost first.
    """
    names: set[str] = set()
    for site in running:
        index = index_of(site.file)
        names |= _names_behind(index, site)
        for words in (_ALIASES, _PARAMETERS):
            found = _lines_with(list(indexes(files, *words)), names, words, running)
            elsewhere = [one for one in found if (one.file, one.line) != (running[0].file, running[0].line)]
            if found:
                return (elsewhere or found)[:MAX_LINES]
    return []


def _names_behind(index: SourceIndex, site: Site) -> set[str]:
    """Return the names on a line, and those from which they get their values in the same function."""
    function = index.function_at(site.line, site.function)
    nodes = [one for one in index.inside(function) if spans(one, site.line) and not hasattr(one, "body")]
    names = {last_name(one) for one in nodes} - {""}
    writes = index.writes_in(function.node)
    for _ in range(MAX_LINES):
        bound = [one for one in writes if {last_name(part) for part in index.walk(one.target)} & names]
        names |= {last_name(part) for one in bound if one.value is not None for part in index.walk(one.value)} - {""}
    return names


def _lines_with(
    files: list[SourceIndex], names: set[str], words: frozenset[str], running: Sequence[Site]
) -> list[Site]:
    """Return the lines of writes to one of `names`, or in a function that gives its value, that use one of `words`.

    Writes in the functions of the lines `running` come first: if one of them is such a write, others are left out.
    """
    writes = [
        (index, write)
        for index in files
        for write in index.writes
        if write.how in ("assign", "add", "setattr") and last_name(container(write.target)) in names
    ]
    functions = {(site.file, site.function) for site in running}
    inside = [one for one in writes if (one[0].file, one[0].site(one[1].node).function) in functions]
    for some in (inside, writes):
        found, called = [], set[str]()
        for index, write in some:
            value = write.value if write.value is not None else write.node
            found += [index.site(write.node)] if _keeps(index, value, words) else []
            called |= {last_name(one.func) for one in index.walk(value) if isinstance(one, ast.Call)}
        for index in files if not found else ():
            for node in index.of(ast.Return, ast.Assign):
                if index.scopes[node].function.name in called and node.value is not None:
                    found += [index.site(node)] if _keeps(index, node.value, words) else []
        if found:
            return list(dict.fromkeys(found))
    return []


def _keeps(index: SourceIndex, value: ast.AST, words: frozenset[str]) -> bool:
    """Return whether an expression uses an attribute or method of `words`, and makes no copy."""
    used = {one.attr for one in index.walk(value) if isinstance(one, ast.Attribute)}
    called = [last_name(one.func) for one in index.walk(value) if isinstance(one, ast.Call)]
    return not words.isdisjoint(used) and not any(part in name for name in called for part in _COPIES)
