"""Extraction of a part of a graph as a graph of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from .data import Columns, GraphFacts, GraphRoot, NodePlace

if TYPE_CHECKING:
    from .graph import Graph


def subgraph(graph: Graph, nodes: Iterable[int]) -> Graph:
    """Return the subgraph of `nodes` and the edges among them; see ``Graph.subgraph``."""
    from .graph import Graph

    old = graph.columns
    kept = sorted(set(nodes))
    number = {i: k for k, i in enumerate(kept)}
    made = Columns(kinds=list(old.kinds), saved_kinds=list(old.saved_kinds))
    led = bytearray(len(kept))
    for i in kept:
        made.kind.append(old.kind[i])
        made.seqs.append(old.seqs[i])
        made.place.append(old.place[i])
        made.freed.append(old.freed[i])
        for at in range(old.starts[i], old.starts[i + 1]):
            to = number.get(old.targets[at], -1)
            made.targets.append(to)
            made.numbers.append(old.numbers[at])
            if to >= 0:
                led[to] = 1
        made.starts.append(len(made.targets))
        for row in range(old.saved_starts[i], old.saved_starts[i + 1]):
            made.saved_kind.append(old.saved_kind[row])
            made.storage.append(old.storage[row])
            made.made.append(number.get(old.made[row], -1))
        made.saved_starts.append(len(made.saved_kind))

    used: set[int] = set()
    for row in set(made.place):
        call = old.places[row].call
        while call >= 0 and call not in used:
            used.add(call)
            call = graph.calls[call].parent
    renumbered = {call: k for k, call in enumerate(sorted(used))}
    calls = tuple(
        replace(graph.calls[c], index=renumbered[c], parent=renumbered.get(graph.calls[c].parent, -1))
        for c in sorted(used)
    )
    made.places = [
        replace(place, call=renumbered.get(place.call, -1)) if place.seen else NodePlace() for place in old.places
    ]

    facts = graph.facts
    roots = tuple(replace(r, node=number[r.node]) for r in facts.roots if r.node in number)
    if not roots:
        roots = tuple(
            GraphRoot(
                f"out{k}" if led.count(0) > 1 else "out", i, 0, (graph.columns.kinds[made.kind[i]].inputs or (None,))[0]
            )
            for k, i in enumerate(i for i in range(len(kept)) if not led[i])
        )
    return Graph(
        made,
        GraphFacts(
            roots,
            {number[i]: leaf for i, leaf in facts.leaves.items() if i in number},
            calls,
            {name: (number[i], out) for name, (i, out) in facts.tensors.items() if i in number},
            {number[i]: ops for i, ops in facts.inside.items() if i in number},
            facts.model,
            facts.notes,
        ),
    )
