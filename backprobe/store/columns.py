"""Encodes layouts and signatures as columns by name: strings and sites once each, the rest as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..packed_calls import Layout, Measured, Signature
from ..records import ACCUMULATE_SEQ, Node, Site
from .codec import Decoder, check_name, to_plain

#: The most inputs or outputs of a node: readers do work for each number below the highest.
MAX_SLOTS = 1 << 20
_MEASURED = ("node", "number", "slot", "kind")


def layout_plain(layout: Layout, texts: bool = True) -> dict[str, Any]:
    strings: dict[str | None, int] = {}
    sites: dict[Site | None, int] = {}
    stacks: dict[tuple[Site, ...], int] = {}

    def numbers(values: Sequence[str | None]) -> list[int]:
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


def _texts(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {str(value)[:80]}")
    return value


def _whole(*values: Any) -> None:
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
    kinds: dict[tuple[tuple[int, ...], str], int] = {}

    def columns(measured: Sequence[Measured]) -> dict[str, list[int]]:
        rows = [(i, k, slot, kinds.setdefault((shape, dtype), len(kinds))) for i, k, slot, shape, dtype in measured]
        return {name: [row[at] for row in rows] for at, name in enumerate(_MEASURED)}

    out, came = columns(signature.out), columns(signature.came)
    return {"order": signature.order, "out": out, "came": came, "kinds": list(kinds)}


def signature_from(plain: Mapping[str, Any]) -> Signature:
    kinds = [(tuple(shape), dtype) for shape, dtype in plain["kinds"]]

    def measured(columns: Mapping[str, list[int]]) -> tuple[Measured, ...]:
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
