"""The names by which the user's code calls what it repeats."""

from __future__ import annotations

import ast

from ..records import Site
from .index import LOOPS, index_of, spans


def names_around(site: Site) -> list[str]:
    """Return the names in the heads of the loops around a line of a function, and the name of the function."""
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    names = [] if function is index.module else [function.name]
    for loop in index.of(*LOOPS):
        if index.scopes[loop].function is not function or not spans(loop, site.line):
            continue
        heads = (loop.test,) if isinstance(loop, ast.While) else (loop.target, loop.iter)
        nodes = [node for head in heads for node in index.walk(head)]
        names += [node.id for node in nodes if isinstance(node, ast.Name)]
        names += [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    return names
