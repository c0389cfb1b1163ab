"""Finds the lines of a class or function that answer a question: ``self.name = ...`` in the class that owns it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import lru_cache, partial
from types import CodeType
from typing import Any

from ..records import Site
from .candidates import Candidate, Reason, best
from .frames import Frames
from .index import FUNCTIONS, Scope, SourceIndex, index_of, indexes, last_name
from .writes import Write

#: A class, and the name of its instance in the parent module.
Owner = tuple[type, str]
#: Maximum number of lines that ``choices`` returns before the first use.
MAX_CONDITIONS = 3
#: Methods and functions that set elements to zero, or multiply them by a mask.
_ZEROING = frozenset(("zero_", "mul_", "mul", "masked_fill_", "masked_fill", "index_fill_", "index_fill", "where"))
_EMPTY = frozenset({"list", "dict", "tuple", "set", "OrderedDict"})
#: Functions that read all variables of their caller.
_READ_ALL_VARIABLES = frozenset({"locals", "vars", "eval", "exec"})


def defined_at(owners: list[Owner], name: str) -> Site | None:
    """Return the line that assigned the parameter `name` of the last of `owners`.

    If there is none in the user's code, return the line that assigned the module which holds it, or the one around
    that.

    :param owners: the classes of the modules around it, outermost first, each with its name in its parent.
    """
    target = name
    for cls, own_name in reversed(owners):
        site = assigned(cls, target)
        if site is not None:
            return site
        target = own_name
    return None


@lru_cache(4096)
def assigned(cls: type, name: str) -> Site | None:
    """Return the line ``self.name = ...`` in a method of `cls`, or ``name = ...`` in the class itself; ``None`` if
    none.
    """
    return best(_assignments(cls, name))


@lru_cache(4096)
def given(cls: type, name: str) -> Site | None:
    """Return the same line as ``assigned``, but prefer one that assigns more than a placeholder (``()``, ``None``)."""
    return best(_assignments(cls, name, no_placeholder=True))


def _assignments(cls: type, name: str, no_placeholder: bool = False) -> list[Candidate[Site]]:
    """Return the lines that may assign ``self.name`` of a class, as candidates.

    A line that computes the name of the attribute when it runs counts only if it is the only candidate.

    :param no_placeholder: prefer lines that assign more than ``None`` or an empty container.
    """
    found, computed = list[Candidate[Site]](), list[Candidate[Site]]()
    for index, method in _methods(cls):
        for write in index.writes_in(method.node):
            reason = _assigns(index, write, name)
            if reason is Reason.UNKNOWN_NAME:
                computed.append(Candidate(index.site(write.node), reason))
            elif reason is not None:
                wished = no_placeholder and not _is_empty(write.value)
                found.append(Candidate(index.site(write.node), reason, int(wished)))
        own = method.owner
        for node in own.bound.get(name, ()) if own is not None else ():
            statement = index.parents[node]
            if isinstance(statement, ast.Assign) or getattr(statement, "value", None) is not None:
                found.append(Candidate(index.site(node), Reason.NAME))
    return found or (computed if len(computed) == 1 else [])


def _assigns(index: SourceIndex, write: Write, name: str) -> Reason | None:
    """Return why a write in a method may set ``self.name``; ``None`` if it does not.

    Some go around the module's ``__setattr__``: ``object.__setattr__(self, name, value)``,
    ``self.__dict__[name] = value``.
    """
    target = write.target
    if isinstance(target, ast.Subscript) and write.how == "assign":
        held, key = target.value, target.slice
        if isinstance(held, ast.Call) and last_name(held.func) == "vars" and held.args:
            held = held.args[0]
        elif isinstance(held, ast.Attribute) and held.attr == "__dict__":
            held = held.value
        else:
            return None
        attribute = key.value if isinstance(key, ast.Constant) else ""
    elif isinstance(target, ast.Attribute) and write.how in ("assign", "setattr", "loop", "with"):
        held, attribute = target.value, target.attr
    else:
        return None
    is_own = index.class_of(held) is not None
    if not attribute and is_own:
        return Reason.UNKNOWN_NAME
    return (Reason.CLASS_ATTRIBUTE if is_own else Reason.ATTRIBUTE) if attribute == name else None


def _is_empty(value: ast.AST | None) -> bool:
    """Return whether an expression is ``None`` or an empty container."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in _EMPTY and not (value.args or value.keywords)
    if isinstance(value, ast.Constant):
        return value.value is None
    return not getattr(value, "elts", getattr(value, "keys", True))


def _methods(cls: type) -> Iterator[tuple[SourceIndex, Scope]]:
    """Yield the source and scope of the methods of `cls` and its bases, those of `cls` first.

    Getters of properties and decorated methods are included; methods of torch and built-in bases, and those whose
    source cannot be read, are not.
    """
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        for value in base.__dict__.values():
            method = getattr(value, "fget", None) or getattr(value, "__func__", value)
            found = scope_of(method) if inspect.isfunction(method) else None
            if found is not None:
                yield found


def scope_of(function: Any) -> tuple[SourceIndex, Scope] | None:
    """Return the source of a function, its decorators removed, or of code; ``None`` if there is none."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", function)
    if not isinstance(code, CodeType):
        return None
    index = index_of(code.co_filename, getattr(function, "__globals__", None))
    scope = index.function_of(code)
    return (index, scope) if scope is not None else None


@lru_cache(4096)
def _constructing_methods(cls: type) -> frozenset[str]:
    """Return the methods that construct instances of `cls`.

    These are ``__init__`` and methods that it calls, such as ``reset_parameters``, but not methods that ``forward``
    calls too.
    """
    called: dict[str, set[str]] = {}
    for index, method in _methods(cls):
        reads = {last_name(node) for node in index.walk(method.node) if _reads(index, node)}
        called.setdefault(method.name, set()).update(reads)

    def reached(name: str) -> set[str]:
        """Return the methods that the method `name` calls, directly or not, and itself."""
        found, left = {name}, [name]
        while left:
            new = (called.get(left.pop(), set()) & called.keys()) - found
            found |= new
            left += new
        return found

    return frozenset(reached("__init__") - (reached("forward") - {"__init__"}))


def _reads(index: SourceIndex, node: ast.AST, name: str = "") -> bool:
    """Return whether `node` reads an attribute of ``self``, of this name if one is given."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or (name and node.attr != name):
        return False
    return index.class_of(node.value) is not None


def _uses(cls: type, name: str) -> Iterator[tuple[SourceIndex, Scope, list[ast.AST]]]:
    """Yield the methods of `cls` that read ``self.name``, with the nodes that do; not its constructing methods."""
    for index, method in _methods(cls):
        uses = [node for node in index.walk(method.node) if _reads(index, node, name)]
        if uses and method.name not in _constructing_methods(cls):
            yield index, method, uses


@lru_cache(4096)
def used(cls: type, name: str) -> Site | None:
    """Return the first line that reads ``self.name`` in a method of `cls`, other than those that construct
    an instance.
    """
    return next((index.site(min(uses, key=_line)) for index, _, uses in _uses(cls, name)), None)


@lru_cache(4096)
def filled_at(cls: type, name: str) -> Site | None:
    """Return the first line of a method of `cls` that adds to the container ``self.name``."""
    for index, method in _methods(cls):
        for write in index.writes_in(method.node):
            held = write.target.value if isinstance(write.target, ast.Subscript) else write.target
            adds = write.how == "add" or (write.how == "assign" and held is not write.target)
            if adds and _reads(index, held, name):
                return index.site(write.node)
    return None


@lru_cache(4096)
def choices(cls: type, name: str) -> list[Site]:
    """Return the lines in a method of `cls` that decide whether ``self.name`` is used, and its first use.

    Methods that construct an instance do not count. The lines are conditions around the use, or statements before it
    that leave the function or loop.
    """
    for index, method, uses in _uses(cls, name):
        last, found = max(map(_line, uses)), dict[int, ast.AST]()
        for node in index.walk(method.node):
            if isinstance(node, (ast.If, ast.IfExp)):
                leaves = any(isinstance(one, (ast.Continue, ast.Break, ast.Return)) for one in index.walk(node))
                if any(index.contains(node, use) for use in uses) or (leaves and node.lineno <= last):
                    found[node.lineno] = node
            elif isinstance(node, ast.comprehension) and any(index.contains(node.iter, use) for use in uses):
                found |= {one.lineno: one for one in node.ifs}
            elif isinstance(node, ast.For) and any(index.contains(node.iter, use) for use in uses):
                found |= {_line(one): one for one in index.walk(node) if isinstance(one, (ast.If, ast.IfExp))}
        first = next((use for use in sorted(uses, key=_line) if _line(use) not in found), None)
        nodes = [found[line] for line in sorted(found)[:MAX_CONDITIONS]]
        return [index.site(node) for node in (*nodes, first) if node is not None]
    return []


def _line(node: ast.AST) -> int:
    """Return the line on which a node begins."""
    return int(node.lineno)  # type: ignore[attr-defined]


def replaced_at(frames: Frames, attribute: str, owner: type | None = None) -> Site | None:
    """Return the line of the user's code that assigns to an attribute of this name from outside: ``model.fc = ...``.

    :param owner: the class whose attribute it is: assignments to that of another class do not count.
    """
    names = {one.__name__ for one in owner.__mro__} if owner is not None else set()
    for index in indexes(frames.users_files(), attribute):
        for write in index.writes:
            target = write.target
            if write.how not in ("assign", "setattr") or not isinstance(target, ast.Attribute):
                continue
            if target.attr == attribute:
                site, cls = index.site(write.node), index.class_of(target.value)
                own = site.function == "__init__" and last_name(_root(target)) == "self"
                if not own and (cls is None or not names or cls.name in names):
                    return site
    return None


def _root(node: ast.AST) -> ast.AST:
    """Return ``x`` for ``x.a[0].b``."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def backward_code(function: object) -> CodeType | None:
    """Return the code of the backward of a custom function's class, its decorators removed; ``None`` if it has none."""
    backward = getattr(function, "backward", None)
    code = getattr(inspect.unwrap(backward), "__code__", None) if callable(backward) else None
    return code if isinstance(code, CodeType) else None


def ignores_gradients(code: CodeType) -> bool:
    """Return whether the code of a custom function's backward never reads the gradients that it is given."""
    read = scope_of(code)
    if read is None:
        return False
    index, scope = read
    arguments = scope.node.args  # type: ignore[attr-defined]
    wanted = {*scope.parameters[1:], *([arguments.vararg.arg] if arguments.vararg else ())}
    names = [node for node in index.walk(scope.node) if isinstance(node, ast.Name)]
    return bool(wanted) and not any(
        node.id in _READ_ALL_VARIABLES or (node.id in wanted and _is_read(index, node) and index.holder(node) is scope)
        for node in names
    )


def _is_read(index: SourceIndex, name: ast.Name) -> bool:
    """Return whether a use of a variable reads it, as in ``x`` and ``x += 1``."""
    return isinstance(name.ctx, ast.Load) or isinstance(index.parents[name], ast.AugAssign)


def returns_at(function: object) -> Site | None:
    """Return the line of the first ``return`` in a custom function's backward, if possible one outside of inner blocks.

    If the source cannot be read, the line of the ``def``; ``None`` if there is no backward.
    """
    code = backward_code(function)
    if code is None:
        return None
    read = scope_of(code)
    if read is None:
        return Site(code.co_filename, code.co_firstlineno, code.co_name)
    index, scope = read
    return index.site(next(iter(index.exits(scope)), scope.node))


def exits_of(code: CodeType, only_subtracting: bool = False) -> list[Site]:
    """Return the lines at which a function returns or yields; those in its outermost block come first.

    :param only_subtracting: if some return a difference or a negated value, the others are left out.
    """
    read = scope_of(code)
    if read is None:
        return []
    index, scope = read
    exits = index.exits(scope)
    if only_subtracting:
        subtracting = [one for one in exits if any(isinstance(node, (ast.Sub, ast.USub)) for node in index.walk(one))]
        exits = subtracting or exits
    return [index.site(node) for node in exits]


def result_of(function: object) -> Site | None:
    """Return the line of a hook that changes a gradient: the first that writes to a ``.grad`` or in place, or else
    returns.

    :param function: the function, or its code. A function that is not written in Python has no lines.
    """
    code = getattr(getattr(function, "__func__", function), "__code__", function)
    read = scope_of(function)
    if read is None:
        return Site(code.co_filename, code.co_firstlineno, code.co_name) if inspect.iscode(code) else None
    index, scope = read
    own = {node for node in index.walk(scope.node) if index.scopes[node].function is scope.function}
    found: list[tuple[int, ast.AST]] = [(1, node) for node in own if isinstance(node, ast.Return)]
    for write in index.writes_in(scope.node):
        if write.node in own and (getattr(write.target, "attr", "") == "grad" or _writes_argument(write, scope)):
            found.append((0, write.node))
    return index.site(min(found, key=lambda one: (one[0], _line(one[1])))[1] if found else scope.node)


def _writes_argument(write: Write, scope: Scope) -> bool:
    """Return whether a write changes a tensor in place; ``+=`` and an assignment only if they change an argument."""
    if write.how == "in-place":
        return True
    root = _root(write.target)
    is_argument = isinstance(root, ast.Name) and root.id in scope.parameters
    return is_argument and (
        write.how == "augment" or (write.how == "assign" and isinstance(write.target, ast.Subscript))
    )


def zeroes(function: Any) -> Site | None:
    """Return the line of a gradient's hook that sets elements to zero.

    It is the first that assigns to a part of a tensor, or multiplies; if there is none, the line of ``result_of``.
    """
    while isinstance(function, partial):
        function = function.func
    if not hasattr(getattr(function, "__func__", function), "__code__"):
        function = inspect.getattr_static(type(function), "__call__", function)
    read = scope_of(function)
    if read is None:
        return result_of(function)
    index, scope = read
    found: list[ast.AST] = []
    for node in index.walk(scope.node):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            is_part = any(isinstance(one, ast.Subscript) for one in targets)
            if is_part or isinstance(getattr(node, "op", None), ast.Mult):
                found.append(node)
        elif (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)) or (
            isinstance(node, ast.Call) and last_name(node.func) in _ZEROING
        ):
            found.append(node)
    return index.site(min(found, key=_line)) if found else result_of(function)


def written_in_loop(function: object) -> Site | None:
    """Return the last line of `function` that writes in place to a loop variable: ``for p in ...: p.add_(...)``."""
    read = scope_of(function)
    if read is None:
        return None
    index, scope = read
    inside = index.writes_in(scope.node)
    over = {index.reference(write.target) for write in inside if write.how == "loop"} - {None}
    found = []
    for write in inside:
        target: ast.AST | None = write.target
        if isinstance(target, ast.Attribute) and target.attr == "data":
            target = target.value
        if write.how in ("in-place", "augment") and isinstance(target, ast.Name) and index.reference(target) in over:
            found.append(target)
    return index.site(max(found, key=_line)) if found else None


def function_called(frames: Frames, name: str) -> Site | None:
    """Return the line ``def name(...)`` in the user's code, if there is exactly one."""
    found = [
        index.site_at(node.lineno, index.opened[node])
        for index in indexes(frames.users_files(), name)
        for node in index.of(*FUNCTIONS)
        if node.name == name
    ]
    return found[0] if len(found) == 1 else None


def use_of(frames: Frames, name: str, near: str) -> Site | None:
    """Return the first line of the user's code that uses `name`, a variable or an attribute.

    The file `near` is searched first. A use as an attribute or an imported name is preferred to a variable.
    """
    found = []
    for index in indexes(sorted(frames.users_files(), key=lambda file: (file != near, file)), name):
        for node in index.of(ast.Attribute, ast.Name):
            if last_name(node) == name:
                known = isinstance(node, ast.Attribute) or index.is_imported(node)
                rank = _line(node) if index.file == near else 0
                found.append(Candidate(index.site(node), Reason.ATTRIBUTE if known else Reason.NAME, 0, rank))
    return best(found)
