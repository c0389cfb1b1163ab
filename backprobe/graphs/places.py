"""Resolution of a place in a graph: a root, a tensor, a parameter, a module, a line, a type or a node."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from ..basics.errors import BackprobeError
from ..basics.select import Choice
from .data import GraphRoot, Node

if TYPE_CHECKING:
    from .graph import Graph

#: A node's number or the node, a root, a name, a glob over names, a pattern, or any number of these.
Place = Union[int, str, Node, GraphRoot, "re.Pattern[str]", Iterable[Any]]
_CALL = re.compile(r"^(.*):(\d+)$")


def resolve(graph: Graph, place: Place) -> list[int]:
    """Return the nodes that `place` refers to, in the graph's order.

    A text is looked up, in this order, as: a root's name, a name given in ``tensors=``, a parameter, a module's path
    (with ``:2`` its second call only), ``file.py:12``, a node's type, a glob over parameters and modules.

    :raises BackprobeError: nothing in the graph matches.
    """
    if isinstance(place, Node):
        place = place.index
    if isinstance(place, GraphRoot):
        return [place.node]
    if isinstance(place, bool) or not isinstance(place, (int, str, re.Pattern, Iterable)) or hasattr(place, "grad_fn"):
        raise BackprobeError(
            f"a {type(place).__name__} is no place in a graph, which holds no tensors: give a name, or name the tensor "
            'when the graph is read: backprobe.graph(loss, tensors={"h": h})'
        )
    if isinstance(place, int):
        if not -len(graph) <= place < len(graph):
            raise BackprobeError(f"there is no node {place}: the graph has {len(graph)} nodes")
        return [place % len(graph)]
    if isinstance(place, str):
        return _by_name(graph, place)
    if isinstance(place, re.Pattern):
        return _by_pattern(graph, place)
    found = set()
    for part in place:
        found.update(resolve(graph, part))
    if not found:
        raise BackprobeError("an empty list is no place in a graph")
    return sorted(found)


def _by_name(graph: Graph, name: str) -> list[int]:
    """Return the nodes that a text refers to, looked up in the order that ``resolve`` states."""
    for root in graph.roots:
        if root.name == name:
            return [root.node]
    if name in graph.tensors:
        return [graph.tensors[name][0]]
    if name in graph.parameters:
        return [graph.parameters[name]]
    found = in_module(graph, name) or at_line(graph, name)
    return found or [i for i in range(len(graph)) if graph.type(i) == name] or _by_pattern(graph, name)


def _by_pattern(graph: Graph, pattern: Any) -> list[int]:
    """Return the nodes of all parameters and modules whose name matches a glob or pattern.

    :raises BackprobeError: none does.
    """
    wanted = Choice(pattern)
    found = {i for name, i in graph.parameters.items() if wanted(name)}
    modules = sorted({call.path for call in graph.calls})
    for path in modules:
        if wanted(path):
            found.update(in_module(graph, path))
    names = [*(root.name for root in graph.roots), *graph.tensors, *graph.parameters, *modules]
    wanted.check(names, "root, tensor, parameter, module, line or node type")
    return sorted(found)


def in_module(graph: Graph, path: str) -> list[int]:
    """Return the nodes made in calls of the module at `path` or of modules inside it, and their parameters.

    A container that is not called itself (``layers``) stands for its contents. ``path:2`` is the second call alone.
    Empty if there is no such module.
    """
    match = _CALL.match(path)
    number = int(match[2]) if match else None
    base = match[1] if match else path
    inside = bytearray(len(graph.calls))
    for call in graph.calls:  # parents come first
        mine = call.path == base and (number is None or call.call == number)
        within = number is None and (base == "" or call.path.startswith(base + "."))
        inside[call.index] = mine or within or (call.parent >= 0 and inside[call.parent] == 1)
    if not any(inside):
        return []
    found = [i for i in range(len(graph)) if (own := graph.call_of(i)) >= 0 and inside[own]]
    found += [i for name, i in graph.parameters.items() if base == "" or name.startswith(base + ".")]
    return sorted(set(found))


def at_line(graph: Graph, line: str | int) -> list[int]:
    """Return the nodes made at a line: ``"train.py:12"``, the end of a path, or a number if there is one file.

    A line of a library has the nodes that were made through it.
    """
    rows = set()
    for row, place in enumerate(graph.columns.places):
        site = place.site
        if isinstance(line, int):
            fits = site is not None and site.line == line
        else:
            texts = map(str, place.library if site is None else (site, *place.library))
            fits = any(text == line or text.endswith(("/" + line, "\\" + line)) for text in texts)
        if fits:
            rows.add(row)
    return [i for i, row in enumerate(graph.columns.place) if row in rows] if rows else []
