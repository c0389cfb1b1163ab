"""Layouts and signatures as columns by name: strings and sites once each, the rest as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..packed import Layout, Measured, Signature
from ..records import ACCUMULATE_SEQ, Node, Site
from .codec import Decoder, to_plain

_MEASURED = ("node", "number", "slot", "kind")


def layout_plain(layout: Layout) -> dict[str, Any]:
    strings: dict[str | None, int] = {}
    sites: dict[Site | None, int] = {}
    stacks: dict[tuple[Site, ...], int] = {}

    def texts(values: Sequence[str | None]) -> list[int]:
        return [strings.setdefault(value, len(strings)) for value in values]

    nodes = layout.nodes
    columns = {
        "name": texts([n.name for n in nodes]),
        "module": texts([n.module for n in nodes]),
        "op": texts([n.op for n in nodes]),
        "parameter": texts([n.parameter for n in nodes]),
        # A sequence number of 2**64 - 1 is more than readers of JSON agree on.
        "seq": [-1 if n.seq >= 2**63 else n.seq for n in nodes],
        "call": [n.call for n in nodes],
        "site": [sites.setdefault(n.site, len(sites)) for n in nodes],
        "edges": [[x for e in n.edges for x in (e if e is not None else (-1, 0))] for n in nodes],
        "leaf_shape": [n.leaf_shape for n in nodes],
        "library": [stacks.setdefault(n.library, len(stacks)) for n in nodes],
    }
    needed = None if layout.needed is None else sorted(layout.needed)
    libraries = [[sites.setdefault(site, len(sites)) for site in stack] for stack in stacks]
    plain = {"strings": list(strings), "sites": to_plain(list(sites)), "nodes": columns, "needed": needed}
    return {**plain, "libraries": libraries}


def layout_from(plain: Mapping[str, Any], decoder: Decoder) -> Layout:
    strings, columns, needed = plain["strings"], plain["nodes"], plain["needed"]
    sites = [decoder(Site, site) for site in plain["sites"]]
    # Files that were written before libraries were noted have none.
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
    return Layout(tuple(nodes), None if needed is None else frozenset(needed))


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

    return Signature(tuple(plain["order"]), measured(plain["out"]), measured(plain["came"]))
