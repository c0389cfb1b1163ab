"""Encodes layouts and signatures as columns by name: strings and sites once each, the rest as numbers."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from ..graphs.packed_calls import Layout, Measured, Signature
from ..records import ACCUMULATE_SEQ, BriefSteps, Node, Site
from .codec import Decoder, check_name, to_plain

#: The most inputs or outputs of a node: readers do work for each number below the highest.
MAX_SLOTS = 1 << 20
#: The most steps, and backward calls, in a stretch of brief steps.
MAX_BRIEF_CALLS = 1 << 22
_MEASURED = ("node", "number", "slot", "kind")


#: The columns of ``BriefSteps`` with one value for each step, and the types of their values.
_BRIEF = {"seconds": "f", "losses": "d", "calls": "i", "scales": "d", "counts": "i", "clip_norms": "d"}
#: ``watching`` and ``graphs`` of ``BriefSteps``, and the length of each column as it is stored.
_BRIEF_HEAD = struct.Struct(f"<dq{len(_BRIEF) + 1}q")


def brief_data(steps: BriefSteps) -> bytes:
    """Encode the columns of `steps` as bytes, without their number and the number of the first.

    A column of equal values is stored as one value, and so are the numbers of backward calls if none is left out.
    """
    columns = []
    for name, code in _BRIEF.items():
        column = array(code, getattr(steps, name))
        columns.append(column[:1] if column.count(column[0]) == len(column) else column)
    numbers = array("q", steps.backwards)
    in_a_row = len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1
    columns.append(numbers[:1] if in_a_row else numbers)
    head = _BRIEF_HEAD.pack(steps.watching, steps.graphs, *map(len, columns))
    return b"".join([head, *(column.tobytes() for column in columns)])


def brief_from(first: int, count: int, data: bytes) -> BriefSteps:
    """Decode the `count` steps that ``brief_data`` encoded, beginning with number `first`.

    :raises ValueError, struct.error: `data` holds no such steps.
    """
    if count > MAX_BRIEF_CALLS:
        raise ValueError(f"a stretch of {count} steps")
    watching, graphs, *lengths = _BRIEF_HEAD.unpack(data[: _BRIEF_HEAD.size])
    at, columns = _BRIEF_HEAD.size, []
    for code, length in zip((*_BRIEF.values(), "q"), lengths, strict=True):
        column = array(code)
        end = at + length * column.itemsize
        if not at <= end <= len(data):
            raise ValueError(f"a stretch of {count} steps has {len(data)} bytes")
        column.frombytes(data[at:end])
        columns.append(column)
        at = end
    found: dict[str, array[Any]] = {}
    for name, column in zip(_BRIEF, columns, strict=False):
        found[name] = column * count if len(column) == 1 else column
        if len(found[name]) != count:
            raise ValueError(f"a stretch of {count} steps has {len(column)} {name}")
    calls, numbers = sum(found["counts"]), columns[-1]
    if len(numbers) == 1 < calls <= MAX_BRIEF_CALLS:
        numbers = array("q", range(numbers[0], numbers[0] + calls))
    if len(numbers) != calls or min(found["counts"], default=0) < 0:
        raise ValueError(f"a stretch of {count} steps has {len(numbers)} backward calls")
    return BriefSteps(first, watching, graphs, backwards=numbers, **found)


def layout_plain(layout: Layout, texts: bool = True) -> dict[str, Any]:
    """Return a layout as data that JSON can hold: columns of its nodes, and tables of texts and lines.

    :param texts: keep the text of source lines.
    """
    strings: dict[str | None, int] = {}
    sites: dict[Site | None, int] = {}
    stacks: dict[tuple[Site, ...], int] = {}

    def numbers(values: Sequence[str | None]) -> list[int]:
        """Return for each text its number in the table of texts, adding new ones."""
        return [strings.setdefault(value, len(strings)) for value in values]

    nodes = layout.nodes
    columns = {
        "name": numbers([n.name for n in nodes]),
        "module": numbers([n.module for n in nodes]),
        "op": numbers([n.op for n in nodes]),
        "parameter": numbers([n.parameter for n in nodes]),
        # JSON readers do not agree on numbers as large as 2**64 - 1.
        "seq": [-1 if n.seq >= 2**63 else n.seq for n in nodes],
        "call": [n.call for n in nodes],
        "site": [sites.setdefault(n.site, len(sites)) for n in nodes],
        "edges": [[x for e in n.edges for x in (e if e is not None else (-1, 0))] for n in nodes],
        "leaf_shape": [n.leaf_shape for n in nodes],
        "library": [stacks.setdefault(n.library, len(stacks)) for n in nodes],
    }
    needed = None if layout.needed is None else sorted(layout.needed)
    libraries = [[sites.setdefault(site, len(sites)) for site in stack] for stack in stacks]
    plain = {"strings": list(strings), "sites": to_plain(list(sites), texts=texts), "nodes": columns, "needed": needed}
    return {**plain, "libraries": libraries}


def layout_from(plain: Mapping[str, Any], decoder: Decoder) -> Layout:
    """Decode the layout that ``layout_plain`` encoded as `plain`.

    :raises ValueError, TypeError, LookupError: it is none; or its edges leave the graph or form a cycle.
    """
    columns, needed = plain["nodes"], plain["needed"]
    strings = [one if one is None else check_name(_texts(one)) for one in plain["strings"]]
    sites = [decoder(Site, site) for site in plain["sites"]]
    # Files written before libraries were recorded have none.
    stacks = [tuple(sites[site] for site in stack) for stack in plain.get("libraries", [()])]
    columns = {"library": [0] * len(columns["name"]), **columns}
    names = ("name", "seq", "module", "call", "site", "op", "parameter", "edges", "leaf_shape", "library")
    nodes = (
        Node(
            *(i, strings[name], ACCUMULATE_SEQ if seq < 0 else seq, strings[module], call, sites[site], strings[op]),
            strings[parameter],
            tuple(None if a < 0 else (a, b) for a, b in zip(edges[0::2], edges[1::2], strict=True)),
            None if leaf_shape is None else tuple(leaf_shape),
            stacks[library],
        )
        for i, (name, seq, module, call, site, op, parameter, edges, leaf_shape, library) in enumerate(
            zip(*(columns[name] for name in names), strict=True)
        )
    )
    layout = Layout(tuple(nodes), None if needed is None else frozenset(needed))
    _check_edges(layout.nodes)
    return layout


def _texts(value: object) -> str:
    """Return `value` if it is text.

    :raises TypeError: it is none.
    """
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {str(value)[:80]}")
    return value


def _whole(*values: object) -> None:
    """Check that all `values` are integers.

    :raises TypeError: one is not.
    """
    for value in values:
        if type(value) is not int:
            raise TypeError(f"a number expected, not {str(value)[:80]}")


def _check_edges(nodes: Sequence[Node]) -> None:
    """Check that edges lead to nodes of the graph and form no cycle, so that traversals terminate.

    :raises ValueError, TypeError: they do not.
    """
    came = [0] * len(nodes)
    for node in nodes:
        _whole(node.seq, node.call or 0, *(node.leaf_shape or ()))
        for edge in node.edges:
            if edge is None:
                continue
            _whole(*edge)
            target, slot = edge
            if target >= len(nodes) or not 0 <= slot < MAX_SLOTS:
                raise ValueError(f"an edge leads to {edge}, of {len(nodes)} nodes")
            came[target] += 1
    ready = [i for i, count in enumerate(came) if not count]
    done = 0
    while ready:
        done += 1
        for edge in nodes[ready.pop()].edges:
            if edge is not None:
                came[edge[0]] -= 1
                if not came[edge[0]]:
                    ready.append(edge[0])
    if done < len(nodes):
        raise ValueError("edges lead in a circle")


def signature_plain(signature: Signature) -> dict[str, Any]:
    """Return a signature as data that JSON can hold: the order of nodes, and columns of the measured gradients."""
    kinds: dict[tuple[tuple[int, ...], str], int] = {}

    def columns(measured: Sequence[Measured]) -> dict[str, list[int]]:
        """Return measured gradients as columns by name."""
        rows = [(i, k, slot, kinds.setdefault((shape, dtype), len(kinds))) for i, k, slot, shape, dtype in measured]
        return {name: [row[at] for row in rows] for at, name in enumerate(_MEASURED)}

    out, came = columns(signature.out), columns(signature.came)
    return {"order": signature.order, "out": out, "came": came, "kinds": list(kinds)}


def signature_from(plain: Mapping[str, Any]) -> Signature:
    """Decode the signature that ``signature_plain`` encoded as `plain`.

    :raises ValueError, TypeError, LookupError: it is none, or names impossible nodes or gradients.
    """
    kinds = [(tuple(shape), dtype) for shape, dtype in plain["kinds"]]

    def measured(columns: Mapping[str, list[int]]) -> tuple[Measured, ...]:
        """Return the columns of measured gradients as one tuple for each."""
        rows = zip(*(columns[name] for name in _MEASURED), strict=True)
        return tuple((i, k, slot, *kinds[kind]) for i, k, slot, kind in rows)

    _whole(*plain["order"], *(size for shape, _ in kinds for size in shape))
    _texts("".join(dtype for _, dtype in kinds))
    signature = Signature(tuple(plain["order"]), measured(plain["out"]), measured(plain["came"]))
    for node, number, slot, _, _ in (*signature.out, *signature.came):
        _whole(node, number, slot)
        if node < 0 or not 0 <= number < MAX_SLOTS:
            raise ValueError(f"a gradient of number {number} of node {node}")
    return signature
