"""Source lines that assign to, or mutate, a variable, attribute or container."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from ..records import Site
from .definitions import CHANGERS, last_name, syntax_nodes
from .frames import Frames
from .sites import site_at

#: Methods that write into an array, and functions that write into their first argument.
WRITERS = frozenset({"fill", "sort", "partition", "itemset", "setfield", "byteswap"})
WRITE_FIRST = frozenset({"copyto", "shuffle", "put", "place", "putmask", "fill_diagonal", "put_along_axis"})


def key_given(frames: Frames, key: str) -> Site | None:
    """Return the first line of the user's code that assigns to the constant subscript `key`: ``group["lr"] *= 0.5``."""
    for file in frames.users_files():
        for node, function in syntax_nodes(file):
            if not isinstance(node, (ast.Assign, ast.AugAssign)):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in (one for top in targets for one in ast.walk(top)):
                if isinstance(target, ast.Subscript) and getattr(target.slice, "value", None) == key:
                    return site_at(file, node.lineno, function)
    return None


def scheduler_stepped(frames: Frames) -> Site | None:
    """Return the first line of the user's code that calls ``step`` of a learning rate scheduler."""
    for file in frames.users_files():
        nodes = syntax_nodes(file)
        made = {
            last_name(target)
            for node, _ in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _schedules(node.value.func)
            for target in node.targets
        }
        for node, function in nodes:
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr == "step" and last_name(called.value) in made:
                return site_at(file, called.lineno, function)
    return None


def _schedules(func: ast.AST) -> bool:
    name = last_name(func)
    return name.endswith(("LR", "Scheduler", "OnPlateau", "WarmRestarts")) or "lr_scheduler" in ast.dump(func)


def used_before(site: Site, name: str) -> Site | None:
    """Return the last line before `site`, in its function, that reads the variable `name`."""
    lines = [
        node.lineno
        for node, function in syntax_nodes(site.file)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        if function == site.function and node.lineno < site.line
    ]
    line = max(lines, default=0)
    return site_at(site.file, line, site.function) if line else None


def container_fill_near(site: Site) -> Site | None:
    """Return the first line near `site` that adds to a container which the statement at `site` reads.

    The line is in the same function. A condition around the statement may read the container too: ``cache[i] = k``
    beside ``if i in cache: k = torch.cat([cache[i], k])``.
    """
    looked: set[str] = set()
    filled: list[tuple[int, str]] = []
    for node, function in syntax_nodes(site.file):
        if function != site.function:
            continue
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
        if isinstance(node, (ast.If, ast.IfExp, ast.While)) and first <= site.line <= last:
            looked |= _containers(node.test)
        elif isinstance(node, ast.stmt) and not hasattr(node, "body") and first <= site.line <= last:
            looked |= _containers(getattr(node, "value", None) or node)
        if isinstance(node, ast.Assign):
            flat = [t for target in node.targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
            filled += [(first, last_name(t.value)) for t in flat if isinstance(t, ast.Subscript)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGERS:
            filled.append((first, last_name(node.func.value)))
    puts = sorted(line for line, name in filled if name and name in looked)
    if not puts:
        return None
    return site_at(site.file, puts[0], site.function)


def _containers(node: ast.AST) -> set[str]:
    """Return the names of containers that `node` reads: ``name[...]``, ``... in name``, ``len(name)``,
    ``name.get(...)``.
    """
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Subscript):
            found.add(last_name(one.value))
        elif isinstance(one, ast.Compare) and any(isinstance(o, (ast.In, ast.NotIn)) for o in one.ops):
            found |= {last_name(c) for c in one.comparators}
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in ("get", "pop"):
            found.add(last_name(one.func.value))
        elif isinstance(one, ast.Call) and getattr(one.func, "id", "") == "len" and one.args:
            found.add(last_name(one.args[0]))
    return found


def changes_of(frames: Frames, name: str, key: str = "", graphs: bool = False) -> Site | None:
    """Return the first line of the user's code that writes into a container called `name`, a variable or an attribute.

    :param key: prefer a line that writes to the container under this key.
    :param graphs: prefer a line that adds more than numbers.
    """
    found: list[tuple[tuple[bool, ...], str, int, str]] = []
    for file in frames.users_files():
        changes = _changes(file)
        keyed = {line for line, changed, _, _ in changes if changed == key}
        found += [
            ((bool(key) and line not in keyed, bare and graphs), file, line, function)
            for line, changed, function, bare in changes
            if changed == name
        ]
    return _first(found)


def writes_to(frames: Frames, path: str) -> list[Site]:
    """Return the user's lines, outside of ``__init__``, that write in place to the tensor at `path` in a model.

    Lines that name its owner too (``x.codebook.weight[i] = ...``) are preferred to those with the last name alone.
    """
    last = path.rpartition(".")[2]
    lines = [
        (owner, site_at(file, line, function))
        for file in frames.users_files()
        for line, name, owner, function in _attribute_writes(file)
        if name == last and function != "__init__"
    ]
    owned = [site for owner, site in lines if owner and f".{path}".endswith(f".{owner}.{last}")]
    return list(dict.fromkeys(owned or [site for _, site in lines]))


@lru_cache(256)
def _attribute_writes(file: str) -> tuple[tuple[int, str, str, str], ...]:
    """Return (line, name, owner, function) of every write to an attribute, or to a part of it.

    A write is an assignment to a part, a call of a mutating method, or ``+=``.
    """
    found = []
    for node, function in syntax_nodes(file):
        target: ast.AST | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            target = node.func.value if not node.func.attr.startswith("_") else None
        elif isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
        while isinstance(target, ast.Subscript) or (isinstance(target, ast.Attribute) and target.attr == "data"):
            target = target.value
        if isinstance(target, ast.Attribute) and target.attr != "grad":
            found.append((node.lineno, target.attr, last_name(target.value), function))  # type: ignore[attr-defined]
    return tuple(sorted(found))


def assigned_in(frames: Frames, name: str, code: Any = None) -> Site | None:
    """Return the first line, outside of ``__init__``, that assigns more than numbers to an attribute `name`.

    If `code` is given, the line assigns to a variable of its function.
    """
    found: list[tuple[tuple[bool, ...], str, int, str]] = []
    for file in frames.users_files() if code is None else (code.co_filename,):
        for line, _, target, function, bare in _assignments(file):
            inside = code is None or (function == code.co_name and code.co_firstlineno <= line)
            wanted = name if code is not None else f".{name}"
            if inside and target == wanted and not bare and (code is not None or function != "__init__"):
                found.append(((), file, line, function))
    return _first(found)


def freezes(frames: Frames) -> list[Site]:
    """Return the lines of the user's code that turn ``requires_grad`` off."""
    found = []
    for file in frames.users_files():
        for node, function in syntax_nodes(file):
            value: ast.AST | None = None
            if isinstance(node, ast.Call) and last_name(node.func) == "requires_grad_":
                value = node.args[0] if node.args else next((k.value for k in node.keywords), None)
            elif isinstance(node, ast.Assign) and last_name(node.targets[0]) == "requires_grad":
                value = node.value
            if isinstance(node, ast.Call | ast.Assign) and isinstance(value, ast.Constant) and value.value is False:
                found.append(site_at(file, node.lineno, function))
    return found


def gives(site: Site, name: str, variable: bool = False) -> bool:
    """Return whether the statement at `site` assigns to an attribute `name`, or to a variable of that name."""
    wanted = name if variable else f".{name}"
    return any(line <= site.line <= last and target == wanted for line, last, target, _, _ in _assignments(site.file))


def _first(found: list[tuple[tuple[bool, ...], str, int, str]]) -> Site | None:
    if not found:
        return None
    _, file, line, function = min(found, key=lambda one: one[0])
    return site_at(file, line, function)


#: Calls that return numbers, or tensors without a graph.
_BARE = frozenset(
    (
        *("item", "detach", "tolist", "numpy", "float", "int", "len", "bool", "str", "list", "dict", "set", "deque"),
        *("defaultdict", "Counter", "zeros", "ones", "empty", "full", "rand", "randn", "zeros_like", "ones_like"),
        *("tensor", "new_zeros", "arange"),
    )
)


def _is_bare(value: ast.AST | None) -> bool:
    """Return whether the expression `value` has no graph, as far as the source shows."""
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return all(_is_bare(one) for one in value.elts)
    if isinstance(value, ast.Call):
        return last_name(value.func) in _BARE
    return value is None or isinstance(value, (ast.Constant, ast.Dict, ast.UnaryOp))


def pairs_of(node: ast.Assign) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield each target of an assignment with its value; tuples element by element."""
    for target in node.targets:
        if not isinstance(target, (ast.Tuple, ast.List)):
            yield target, node.value
        elif isinstance(node.value, (ast.Tuple, ast.List)) and len(node.value.elts) == len(target.elts):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield from ((one, node.value) for one in target.elts)


@lru_cache(256)
def _assignments(file: str) -> tuple[tuple[int, int, str, str, bool], ...]:
    """Return (line, last line, target, function, whether the value has no graph) of the assignments in `file`.

    A target ``.name`` is an attribute.
    """
    found = []
    for node, function in syntax_nodes(file):
        pairs: Iterable[tuple[ast.AST, ast.AST | None]] = ()
        if isinstance(node, ast.Assign):
            pairs = pairs_of(node)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            pairs = [(node.target, node.value)]
        for target, value in pairs:
            inner: ast.AST = target
            while isinstance(inner, ast.Subscript):
                inner = inner.value
            name = f".{inner.attr}" if isinstance(inner, ast.Attribute) else last_name(inner)
            line, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
            if name:
                found.append((line, last, name, function, _is_bare(value)))
    return tuple(sorted(found))


@lru_cache(256)
def _changes(file: str) -> tuple[tuple[int, str, str, bool], ...]:
    """Return (line, name, function, whether only numbers are added) of every mutation in `file`.

    A mutation is ``name.append(...)``, ``name[...] = ...`` or ``name += ...``.
    """
    found = []
    for node, function in syntax_nodes(file):
        pairs: list[tuple[ast.AST, ast.AST | None]] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            out = next((k.value for k in node.keywords if k.arg == "out"), None)
            if node.func.attr in CHANGERS | WRITERS:
                pairs = [(node.func.value, node.args[-1] if node.args else node)]
            elif out is not None:
                pairs = [(out, node)]
            elif node.func.attr in WRITE_FIRST and node.args:
                pairs = [(node.args[0], node)]
        elif isinstance(node, ast.AugAssign):
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.Assign):
            pairs = [(t.value, value) for t, value in pairs_of(node) if isinstance(t, ast.Subscript)]
        line = getattr(node, "lineno", 0)
        for start, value in pairs:
            bare, target = _is_bare(value), start
            while isinstance(target, ast.Subscript):
                if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                    found.append((line, target.slice.value, function, bare))  # the list under "loss" holds it
                target = target.value
            found.append((line, last_name(target), function, bare))
    return tuple(sorted(found))
