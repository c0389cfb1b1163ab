"""The memory that a graph keeps for backward, with its creators and other holders.

For ``backprobe.saved_tensors`` and ``--check memory``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..graphs.data import NodePlace
from ..graphs.plan import ACCUMULATE, engine_order
from ..records import (
    ModuleCall,
    SavedBytes,
    SavedEntry,
    SavedMemory,
    SavedModule,
    SavedMoment,
    SavedPlaced,
    SavedUnknown,
)
from ..torch_internals.walk import LiveGraph
from .estimate import Estimate, Made, Stored
from .holders import Holders
from .storages import Found, Storages

#: Limits of the stored record: rows by line, op, module and dtype; storages; points of the curve; modules.
ROWS, ENTRIES, POINTS, MODULES = 2000, 200, 1000, 500


#: Names that are no op's: the node's name says more.
NO_OPS = ("Function.apply", "__get__")


class Finds(Protocol):
    """Locates the code that created nodes, by their sequence numbers (``NodePlaces``)."""

    def find(self, seqs: Sequence[int]) -> tuple[list[NodePlace], Sequence[int], tuple[ModuleCall, ...]]: ...


class Nowhere:
    """The places of nodes if nothing was recorded."""

    def find(self, seqs: Sequence[int]) -> tuple[list[NodePlace], Sequence[int], tuple[ModuleCall, ...]]:
        """Return one unknown place, which all nodes have, and no module calls."""
        return [NodePlace()], [0] * len(seqs), ()


@dataclass
class Reading:
    """The saved memory found in a graph. ``entries`` are sorted, most bytes first."""

    entries: list[SavedEntry]
    placed: list[SavedPlaced]
    unknown: list[SavedUnknown]
    curve: list[SavedMoment]
    nodes: int
    modules: tuple[SavedModule, ...] = ()
    #: Nodes whose saved tensors a backward has freed.
    freed: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes that only the graph holds."""
        return sum(e.nbytes for e in self.entries if not e.holder)

    def rows(self, limit: int = ROWS) -> tuple[SavedBytes, ...]:
        """Return the entries aggregated, most bytes first; those beyond `limit` rows are merged into one row per
        holder.
        """
        rows: dict[Any, list[Any]] = {}
        for e in self.entries:
            row = rows.setdefault((e.site, e.op, e.module, e.dtype, e.holder), [0, 0, set()])
            row[0] += e.nbytes
            row[1] += e.tensors
            row[2].add(e.name)
        made = [
            SavedBytes(site, op, module, count, tensors, tuple(sorted(names)), dtype, holder)
            for (site, op, module, dtype, holder), (count, tensors, names) in rows.items()
        ]
        made.sort(key=lambda r: -r.bytes)
        rest: dict[str, list[int]] = {}
        for small in made[limit:]:
            total = rest.setdefault(small.holder, [0, 0])
            total[0] += small.bytes
            total[1] += small.tensors
        others = [SavedBytes(None, "(others)", None, a, b, (), "", holder) for holder, (a, b) in rest.items()]
        return (*made[:limit], *others)

    def steps(self, limit: int = POINTS) -> tuple[SavedMoment, ...]:
        """Return the `limit` moments that free the most memory, in order, after the state before the backward."""
        left = self.nbytes
        drops = []
        for moment in self.curve:
            if moment.nbytes < left:
                drops.append((left - moment.nbytes, moment))
            left = moment.nbytes
        largest = sorted(drops, key=lambda d: -d[0])[:limit]
        return (SavedMoment("", None, self.nbytes, -1), *sorted((m for _, m in largest), key=lambda m: m.order))

    def record(self, step: int, backward: int, looked: int) -> SavedMemory:
        """Return the bounded record that a run stores."""
        alone = sum(1 for e in self.entries if not e.holder)
        return SavedMemory(
            step,
            backward,
            looked,
            self.nodes,
            alone,
            tuple(self.entries[:ENTRIES]),
            self.steps(),
            tuple(self.placed),
            tuple(self.unknown),
            self.modules[:MODULES],
        )


def storages_of(graph: LiveGraph, holders: Holders) -> tuple[Storages, dict[int, tuple[str, str]]]:
    """Return the storages that the nodes of `graph` have saved, and kind and name of the other holder of each, by key;
    two empty strings if only the graph holds it. Nothing is unpacked: Note [Nothing is unpacked].
    """
    nodes, storages = graph.nodes, Storages()
    for i in sorted(range(len(nodes)), key=graph.seqs.__getitem__):
        if graph.plan.names[i] != ACCUMULATE:
            storages.add(i, nodes[i])
    holders.look(nodes)
    holders.other_graphs(nodes, set(storages.found))
    # Before anything else refers to them.
    return storages, {key: holders.of(key, found) for key, found in storages.found.items()}


def read(graph: LiveGraph, origins: Finds, holders: Holders) -> Reading:
    """Read the saved tensors of the nodes of `graph`: who made each, who else holds it, and when the backward frees
    it.
    """
    nodes, seqs, plan = graph.nodes, graph.seqs, graph.plan
    storages, held = storages_of(graph, holders)
    places, rows, calls = origins.find(seqs)
    modules = [_module(places[row], calls) for row in rows]
    entries = [
        _entry(found, plan.names[found.first], places[rows[found.first]], modules[found.first], *held[key])
        for key, found in storages.found.items()
    ]
    position = {i: at for at, i in enumerate(engine_order(plan, seqs))}
    freed: dict[int, int] = {}
    for key, found in storages.found.items():
        if not held[key][0]:
            last = max((position[i] for i in found.savers if i in position), default=0)
            freed[last] = freed.get(last, 0) + found.storage.nbytes()
    left = sum(freed.values())
    curve = []
    for i, at in position.items():
        left -= freed.get(at, 0)
        curve.append(SavedMoment(plan.names[i], modules[i], left, at))
    estimate: tuple[SavedModule, ...] = ()
    if calls:
        stored = _stored(graph, storages.found, held)
        estimate = Estimate(graph, calls, [places[row].call for row in rows]).modules(stored)
    return Reading(
        sorted(entries, key=lambda e: -e.nbytes),
        [
            SavedPlaced(
                policy, sum(tensors for _, tensors in copies.values()), sum(size for size, _ in copies.values())
            )
            for policy, copies in storages.placed.items()
        ],
        [SavedUnknown(what, count, why) for (what, why), count in storages.unknown.items()],
        curve,
        len(nodes),
        estimate,
        storages.freed,
    )


def _module(place: NodePlace, calls: Sequence[ModuleCall]) -> str | None:
    """Return the path of the module in which a node was made; empty outside modules, ``None`` if it was not
    observed.
    """
    if place.call >= 0:
        return calls[place.call].path
    return "" if place.seen else None


def _entry(found: Found, node: str, place: NodePlace, module: str | None, holder: str, holder_name: str) -> SavedEntry:
    """Return the record of a storage.

    `node`: the name of the node that saved it first; `holder`: the kind of other holder.
    """
    return SavedEntry(
        found.storage.nbytes(),
        node,
        found.name,
        found.shape,
        found.dtype,
        ("" if place.op in NO_OPS else place.op) or re.sub(r"Backward\d*$", "", node),
        module,
        place.site,
        found.tensors,
        found.views,
        holder,
        holder_name,
        found.packed,
    )


def _stored(graph: LiveGraph, storages: dict[int, Found], held: dict[int, tuple[str, str]]) -> Iterable[Stored]:
    """Yield the storages in the form that the estimate takes. `held`: kind and name of the other holder of each."""
    index = {node: i for i, node in enumerate(graph.nodes)}
    for key, found in storages.items():
        made: set[Made] = set(found.own)
        for tensor in found.keep.values():
            i = index.get(tensor.grad_fn)
            if i is not None:
                made.add((i, tensor.output_nr))
        yield Stored(found.storage.nbytes(), found.savers, bool(held[key][0]), made)
