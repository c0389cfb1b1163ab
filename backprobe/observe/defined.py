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
    """The line ``self.name = ...`` in a method of `cls`, read from the method's own code: its module may be gone."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        for method in base.__dict__.values():
            if not inspect.isfunction(method):
                continue
            try:
                lines, first = inspect.getsourcelines(method)
                tree = ast.parse(textwrap.dedent("".join(lines)))
            except (OSError, TypeError, SyntaxError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and _names(node, name):
                    file, at = method.__code__.co_filename, node.lineno - 1
                    return Site(file, first + at, method.__name__, lines[at].strip())
    return None


def _names(node: ast.Assign | ast.AnnAssign, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    flat = [one for t in targets for one in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return any(isinstance(one, ast.Attribute) and one.attr == name for one in flat)
