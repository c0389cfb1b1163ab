"""Finds the line ``self.name = ...`` that assigned a parameter or module, in the class that owns it."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from ..records import Site
from .frames import Frames
from .sites import site_at

#: A class, and the name of its instance in the parent module.
Owner = tuple[type, str]
#: Methods that add to a container.
CHANGERS = frozenset({"append", "extend", "add", "appendleft", "insert", "update", "setdefault", "put", "push"})


def defined_at(owners: list[Owner], name: str) -> Site | None:
    """Return the line that assigned the parameter `name` of the last of `owners`.

    If there is none, return the line that assigned the innermost owner in the user's code.
    """
    target = name
    for cls, own_name in reversed(owners):
        site = assigned(cls, target)
        if site is not None:
            return site
        target = own_name
    return None


_HOLDERS = frozenset({"list", "dict", "tuple", "set", "OrderedDict"})


@lru_cache(4096)
def assigned(cls: type, name: str) -> Site | None:
    """Return the line ``self.name = ...`` in a method of `cls`.

    It is read from the method's own code, since the source module may no longer exist.
    """
    site = next((site for site, _ in _assignment_lines(cls, name)), None)
    return site if site is not None else _bypassing_assignment(cls, name)


@lru_cache(4096)
def given(cls: type, name: str) -> Site | None:
    """Return the same line as ``assigned``, but prefer one that assigns more than a placeholder (``()``, ``None``)."""
    sites = [site for site, value in _assignment_lines(cls, name) if not _is_empty(value)]
    return sites[0] if sites else assigned(cls, name)


def _assignment_lines(cls: type, name: str) -> Iterator[tuple[Site, ast.expr | None]]:
    """Yield lines ``self.name = ...`` with the assigned value, if it can be determined."""
    for method, lines, first, tree in _methods(cls):
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and _names(node, name):
                file, at = method.__code__.co_filename, node.lineno - 1
                yield Site(file, first + at, method.__name__, lines[at].strip()), _value_for(node, name)


def _value_for(node: ast.Assign | ast.AnnAssign, name: str) -> ast.expr | None:
    """Return the value that a statement assigns to ``self.name``; for a multiple assignment, the matching element."""
    for target in node.targets if isinstance(node, ast.Assign) else ():
        several = target.elts if isinstance(target, ast.Tuple) else ()
        if several and isinstance(node.value, ast.Tuple) and len(several) == len(node.value.elts):
            pairs = zip(several, node.value.elts, strict=True)
            return next((v for t, v in pairs if isinstance(t, ast.Attribute) and t.attr == name), None)
    return node.value


def _is_empty(value: ast.expr | None) -> bool:
    """Return whether an expression is ``None`` or an empty container."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in _HOLDERS and not (value.args or value.keywords)
    if isinstance(value, ast.Constant):
        return value.value is None
    return (isinstance(value, (ast.Tuple, ast.List)) and not value.elts) or (
        isinstance(value, ast.Dict) and not value.keys
    )


def _bypassing_assignment(cls: type, name: str) -> Site | None:
    """Return the line in a method of `cls` that sets an attribute without the module's ``__setattr__``.

    Examples are ``object.__setattr__(self, name, value)`` and ``self.__dict__[name] = value``. A line with a variable
    as the name counts only if there is no other.
    """
    found: list[tuple[bool, Site]] = []
    for method, lines, first, tree in _methods(cls):
        for node in ast.walk(tree):
            key: ast.AST | None = None
            if not isinstance(node, (ast.Call, ast.Assign)):
                continue
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "object.__setattr__" and len(node.args) == 3:
                key = node.args[1]
            elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Subscript):
                key = target.slice if ast.unparse(target.value) in ("self.__dict__", "vars(self)") else None
            if key is None or (isinstance(key, ast.Constant) and key.value != name):
                continue
            at = node.lineno - 1
            site = Site(method.__code__.co_filename, first + at, method.__name__, lines[at].strip())
            found.append((isinstance(key, ast.Constant), site))
    exact = [site for constant, site in found if constant]
    return exact[0] if exact else found[0][1] if len(found) == 1 else None


def _methods(cls: type) -> Iterator[tuple[Any, list[str], int, ast.Module]]:
    """Yield (method, its lines, number of the first line, its syntax tree) of the readable methods of `cls`."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        for method in base.__dict__.values():
            if not inspect.isfunction(method):
                continue
            try:
                lines, first = inspect.getsourcelines(method)
                yield method, lines, first, ast.parse(textwrap.dedent("".join(lines)))
            except (OSError, TypeError, SyntaxError):
                continue


@lru_cache(4096)
def _constructing_methods(cls: type) -> frozenset[str]:
    """Return the methods that construct instances of `cls`.

    These are ``__init__`` and methods that it calls, such as ``reset_parameters``, but not methods that ``forward``
    calls too.
    """
    called: dict[str, set[str]] = {}
    for method, _, _, tree in _methods(cls):
        reads = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_own(node, node.attr)}
        called.setdefault(method.__name__, set()).update(reads)

    def reached(name: str) -> set[str]:
        found, left = {name}, [name]
        while left:
            new = (called.get(left.pop(), set()) & called.keys()) - found
            found |= new
            left += new
        return found

    return frozenset(reached("__init__") - (reached("forward") - {"__init__"}))


@lru_cache(4096)
def used(cls: type, name: str) -> Site | None:
    """Return the first line that reads ``self.name`` in a method of `cls`, other than its constructing methods."""
    for method, lines, first, tree in _methods(cls):
        if method.__name__ in _constructing_methods(cls):
            continue
        at = [node.lineno - 1 for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_own(node, name)]
        if at:
            return Site(method.__code__.co_filename, first + min(at), method.__name__, lines[min(at)].strip())
    return None


@lru_cache(4096)
def filled_at(cls: type, name: str) -> Site | None:
    """Return the first line of a method of `cls` that adds to the container ``self.name``."""
    for method, lines, first, tree in _methods(cls):
        holders: list[tuple[int, ast.AST]] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                holders += [(node.lineno, t.value) for t in node.targets if isinstance(t, ast.Subscript)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGERS:
                holders.append((node.lineno, node.func.value))
        at = [line for line, held in holders if isinstance(held, ast.Attribute) and _is_own(held, name)]
        if at:
            line = min(at)
            return Site(method.__code__.co_filename, first + line - 1, method.__name__, lines[line - 1].strip())
    return None


@lru_cache(4096)
def choices(cls: type, name: str) -> list[Site]:
    """Return the lines in a method of `cls` that decide whether ``self.name`` is used, and its first use.

    Constructing methods do not count. The lines are conditions around the use, or statements before it that leave the
    function or loop.

    The lines are conditions around the use, or statements before it that leave the function or loop.
    """
    for method, lines, first, tree in _methods(cls):
        uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_own(node, name)]
        if method.__name__ in _constructing_methods(cls) or not uses:
            continue
        found: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.If, ast.IfExp)):
                leaves = any(isinstance(one, (ast.Continue, ast.Break, ast.Return)) for one in ast.walk(node))
                inside = any(one in uses for part in ast.iter_child_nodes(node) for one in ast.walk(part))
                before = leaves and node.lineno <= max(use.lineno for use in uses)
                if inside or before:
                    found.add(node.lineno)
            if isinstance(node, (ast.For, ast.comprehension)) and any(one in uses for one in ast.walk(node.iter)):
                inner: Iterable[Any] = ast.walk(node) if isinstance(node, ast.For) else node.ifs
                conditional = isinstance(node, ast.comprehension)
                found.update(one.lineno for one in inner if conditional or isinstance(one, (ast.If, ast.IfExp)))
        at = sorted(found)[:3] + sorted({use.lineno for use in uses} - found)[:1]
        return [Site(method.__code__.co_filename, first + n - 1, method.__name__, lines[n - 1].strip()) for n in at]
    return []


def _is_own(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _names(node: ast.Assign | ast.AnnAssign, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    flat = [one for t in targets for one in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return any(isinstance(one, ast.Attribute) and one.attr == name for one in flat)


@lru_cache(64)
def syntax_nodes(file: str) -> tuple[tuple[ast.AST, str], ...]:
    """Return every node of the syntax tree of `file`, with the name of the function around it."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    nodes: list[tuple[ast.AST, str]] = [(tree, "<module>")]
    for node, function in nodes:  # grows as we go
        inner = node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        nodes += [(child, inner) for child in ast.iter_child_nodes(node)]
    return tuple(nodes)


def replaced_at(frames: Frames, attribute: str) -> Site | None:
    """Return the line of the user's code that assigns to an attribute of this name from outside: ``model.fc = ...``."""
    for file in frames.users_files():
        for line, owner, name, function in _assignments(file):
            if name == attribute and (owner != "self" or function != "__init__"):
                return site_at(file, line, function)
    return None


@lru_cache(256)
def _assignments(file: str) -> tuple[tuple[int, str, str, str], ...]:
    """Return (line, variable, attribute, function) of every ``variable.attribute = ...`` in `file`."""
    found = []
    for node, function in syntax_nodes(file):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "setattr" and isinstance(node, ast.Call):
            name = node.args[1] if len(node.args) == 3 else None
            if isinstance(name, ast.Constant):
                found.append((node.lineno, "setattr", str(name.value), function))
        if isinstance(node, ast.Assign):
            for t in node.targets:
                if isinstance(t, ast.Attribute):
                    base = t.value
                    while isinstance(base, (ast.Attribute, ast.Subscript)):
                        base = base.value
                    found.append((node.lineno, base.id if isinstance(base, ast.Name) else "", t.attr, function))
    return tuple(sorted(found))


def calls_of_method(frames: Frames, method: str) -> list[tuple[Site, int, int, str]]:
    """Return (line, first and last line, name of the first argument) of calls ``x.method(...)`` in the user's code."""
    found = []
    for file in frames.users_files():
        for line, last, name, argument, function in _calls(file):
            if name == method:
                site = site_at(file, line, function)
                found.append((site, line, last, argument))
    return found


@lru_cache(256)
def _calls(file: str) -> tuple[tuple[int, int, str, str, str], ...]:
    """Return (line, last line, method, name of the first argument, function around it) of every method call in
    `file`.
    """
    found = []
    for node, function in syntax_nodes(file):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            first = node.args[0] if node.args else None
            argument = (
                first.id if isinstance(first, ast.Name) else first.attr if isinstance(first, ast.Attribute) else ""
            )
            found.append((node.lineno, node.end_lineno or node.lineno, node.func.attr, argument, function))
    return tuple(sorted(found))


def returns_at(function: Any) -> Site | None:
    """Return the line of the first ``return`` in a custom function's backward."""
    code = getattr(getattr(function, "backward", None), "__code__", None)
    if code is None:
        return None
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return Site(code.co_filename, code.co_firstlineno, code.co_name)
    found = next((n for n in ast.walk(tree) if isinstance(n, ast.Return)), None)
    at = found.lineno - 1 if found is not None else 0
    return Site(code.co_filename, first + at, code.co_name, lines[at].strip())


def result_of(function: Any) -> Site | None:
    """Return the line of a hook that changes a gradient: one that writes to a ``.grad``, writes in place, or returns.

    :param function: the function, or its code. A function that is not written in Python has no lines.
    """
    code = getattr(getattr(function, "__func__", function), "__code__", function)
    if not inspect.iscode(code):
        return None
    first = code.co_firstlineno
    last = max((at for _, _, at in code.co_lines() if at), default=first)
    found: list[tuple[int, int]] = []
    for node, name in syntax_nodes(code.co_filename):
        line = getattr(node, "lineno", 0)
        if not first <= line <= last or name != code.co_name:
            continue
        called = node.func if isinstance(node, ast.Call) else None
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Attribute) and t.attr == "grad" for t in targets) or (
            isinstance(called, ast.Attribute) and called.attr.endswith("_") and not called.attr.startswith("__")
        ):
            found.append((0, line))
        elif isinstance(node, ast.Return):
            found.append((1, line))
    at = min(found)[1] if found else first
    return site_at(code.co_filename, at, code.co_name)


def written_in_loop(function: Any) -> Site | None:
    """Return the last line of `function` that writes in place to a loop variable: ``for p in ...: p.add_(...)``."""
    function = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    over = {
        name.id
        for loop in ast.walk(tree)
        if isinstance(loop, ast.For)
        for name in ast.walk(loop.target)
        if isinstance(name, ast.Name)
    }
    at = -1
    for node in ast.walk(tree):
        target: ast.AST | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            target = node.func.value
        elif isinstance(node, ast.AugAssign):
            target = node.target
        if isinstance(target, ast.Attribute) and target.attr == "data":
            target = target.value
        if isinstance(target, ast.Name) and target.id in over:
            at = max(at, target.lineno - 1)
    return Site(function.__code__.co_filename, first + at, function.__name__, lines[at].strip()) if at >= 0 else None


def function_called(frames: Frames, name: str) -> Site | None:
    """Return the line ``def name(...)`` in the user's code, if there is exactly one."""
    found = [
        site_at(file, node.lineno, name)
        for file in frames.users_files()
        for node, _ in syntax_nodes(file)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
    ]
    return found[0] if len(found) == 1 else None


def use_of(frames: Frames, name: str, near: str) -> Site | None:
    """Return the first line of the user's code that uses `name`, a variable or an attribute; the file `near` is
    searched first.
    """
    for file in sorted(frames.users_files(), key=lambda f: (f != near, f)):
        used = [
            (node.lineno, function)
            for node, function in syntax_nodes(file)
            if (isinstance(node, ast.Name) and node.id == name)
            or (isinstance(node, ast.Attribute) and node.attr == name)
        ]
        if used:
            line, function = min(used)
            return site_at(file, line, function)
    return None


def last_name(node: ast.AST | None) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
