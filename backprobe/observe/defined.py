"""Where a parameter or module was assigned: the line ``self.name = ...`` of the class that owns it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import lru_cache

from ..records import Site

#: A class, and the name of its instance in the module around it.
Owner = tuple[type, str]


def defined_at(owners: list[Owner], name: str) -> Site | None:
    """The line that made a parameter `name` of the last of `owners`: in the innermost one whose class is the user's."""
    target = name
    for cls, own_name in reversed(owners):
        site = _assigned(cls, target)
        if site is not None:
            return site
        target = own_name
    return None


@lru_cache(4096)
def _assigned(cls: type, name: str) -> Site | None:
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        try:
            lines, first = inspect.getsourcelines(base)
            file = inspect.getsourcefile(base) or ""
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for t in targets:
                for one in t.elts if isinstance(t, ast.Tuple) else [t]:
                    if isinstance(one, ast.Attribute) and one.attr == name:
                        line = first + node.lineno - 1
                        return Site(file, line, "__init__", lines[node.lineno - 1].strip())
    return None
