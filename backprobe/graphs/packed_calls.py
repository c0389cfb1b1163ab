"""The nodes of a backward call as flat lists, converted to ``NodeRun`` records on access. Needs no torch.

A training loop builds the same graph thousands of times. Its nodes, with module, line and edges, are a ``Layout``;
which gradients were measured, and their shapes, a ``Signature``: both are shared by the calls that they fit, so that a
call itself is a list of norms and a list of times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import overload

from ..ops import info
from ..records import BadValues, GradStat, Node, NodeRun
from .order import Schedule, by_walk, sources
from .plan import ACCUMULATE

#: Slot of a gradient that is the same tensor as an incoming one: minus one, minus the number of the input.
SAME = -1


@dataclass(frozen=True)
class Layout:
    """A graph: its nodes, roots first. Sequence numbers count from ``base``, the lowest in the graph.

    :ivar needed: the nodes that run when only some inputs are asked for; ``None``: all.
    """

    nodes: tuple[Node, ...]
    needed: frozenset[int] | None = None


#: A measured gradient: (node, output or input number, slot of its norm, shape, dtype).
Measured = tuple[int, int, int, tuple[int, ...], str]


@dataclass(frozen=True)
class Signature:
    """The order in which nodes with a hook ended, and the measured outgoing and incoming gradients."""

    order: tuple[int, ...]
    out: tuple[Measured, ...]
    came: tuple[Measured, ...]


@dataclass(frozen=True)
class Packed:
    """The measurements of a backward call: ``norms`` by slot, ``seconds`` in the order of ``signature.order``."""

    layout: Layout
    signature: Signature
    norms: Sequence[float]
    seconds: Sequence[float]
    unmeasured: frozenset[int] = frozenset()
    bad: Mapping[int, BadValues] = field(default_factory=dict)
    raised: bool = False


class PackedNodes(Sequence[NodeRun]):
    """The nodes of one backward call, unpacked on first use."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed
        self._runs: tuple[NodeRun, ...] | None = None

    def __len__(self) -> int:
        return len(self.packed.layout.nodes)

    @overload
    def __getitem__(self, i: int) -> NodeRun: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[NodeRun, ...]: ...
    def __getitem__(self, i: int | slice) -> NodeRun | tuple[NodeRun, ...]:
        if self._runs is None:
            self._runs = self._unpacked()
        return self._runs[i]

    def _unpacked(self) -> tuple[NodeRun, ...]:
        """Return the records of all nodes; a subclass may read them from elsewhere."""
        return unpack(self.packed)

    def __repr__(self) -> str:
        return f"<{len(self)} nodes>"


def unpack(packed: Packed) -> tuple[NodeRun, ...]:
    """Return the records of all nodes of a packed call: gradients, times, and the order in which they ran.

    Gradients of nodes without a hook are derived: a reshaping node passes on the norm that it received.
    """
    layout, signature = packed.layout, packed.signature
    nodes = layout.nodes
    ran = {node: at for at, node in enumerate(run_order(layout, signature.order, packed.raised))}
    seconds = dict(zip(signature.order, packed.seconds, strict=True))
    incoming: list[dict[int, GradStat]] = [{} for _ in nodes]
    outgoing: list[dict[int, GradStat]] = [{} for _ in nodes]
    by_node: list[list[Measured]] = [[] for _ in nodes]
    for m in signature.out:
        by_node[m[0]].append(m)
    # The sum of several incoming gradients was measured separately, and overrides each producer's gradient.
    apart: set[tuple[int, int]] = set()
    for i, k, slot, shape, dtype in signature.came:
        incoming[i][k] = _stat(packed, slot, shape, dtype)
        apart.add((i, k))
    for i in ran:  # producers before consumers
        node = nodes[i]
        out = outgoing[i]
        for _, k, slot, shape, dtype in by_node[i]:
            if slot < 0:
                came = incoming[i].get(SAME - slot)
                out[k] = GradStat(shape, dtype, came.norm if came else None, came.bad if came else None)
            else:
                out[k] = _stat(packed, slot, shape, dtype)
        if info(node.name).reshapes and incoming[i]:
            came = incoming[i][min(incoming[i])]
            out[0] = GradStat(None, came.dtype, came.norm, came.bad)
        for k, edge in enumerate(node.edges):
            if edge is not None and k in out and edge not in apart:
                stat, leaf_shape = out[k], nodes[edge[0]].leaf_shape
                if stat.shape is None and leaf_shape is not None:
                    stat = GradStat(leaf_shape, stat.dtype, stat.norm, stat.bad)
                incoming[edge[0]][edge[1]] = stat
    return tuple(
        NodeRun(
            node,
            ran.get(i),
            seconds.get(i),
            tuple(incoming[i].get(k) for k in range(max(incoming[i], default=-1) + 1)),
            tuple(outgoing[i].get(k) for k in range(len(node.edges))) if i in ran else (),
        )
        for i, node in enumerate(nodes)
    )


def _stat(packed: Packed, slot: int, shape: tuple[int, ...], dtype: str) -> GradStat:
    """Return the record of a gradient from its norm's position in ``packed.norms``."""
    norm = None if slot in packed.unmeasured else packed.norms[slot]
    return GradStat(shape, dtype, norm, packed.bad.get(slot))


def run_order(layout: Layout, observed: Sequence[int], raised: bool) -> list[int]:
    """Return the indices of all nodes that ran, in order.

    The engine's rule (``engine_order``) puts nodes without a hook between those that were observed. Where what was
    observed differs from the rule (device threads, hooks that run a backward of their own), what was observed holds.

    :param observed: the nodes with a hook, in the order in which they ended.
    :param raised: the call ended with an error, so that not all nodes ran.
    """
    nodes = layout.nodes
    starts = [0, *accumulate(len(node.edges) for node in nodes)]
    targets = [-1 if edge is None else edge[0] for node in nodes for edge in node.edges]
    keys = by_walk([node.seq for node in nodes])
    schedule = Schedule(starts, targets, keys, sources(starts, targets), layout.needed)
    free = {i for i, node in enumerate(nodes) if node.name == ACCUMULATE or info(node.name).reshapes}
    order: list[int] = []
    at = 0

    def may_run(i: int) -> bool:
        """Return whether a node has no hook, or is the next one that was observed."""
        return i in free or (at < len(observed) and i == observed[at])

    while (i := schedule.next) is not None:
        if not may_run(i):
            other = schedule.best(may_run) if at < len(observed) or not raised else None
            if other is None:
                break
            i = other
        at += i not in free
        order.append(i)
        schedule.ran(i)
    ran = set(order)
    return order if at == len(observed) else [*order, *(i for i in observed if i not in ran)]


def pack(runs: Sequence[NodeRun]) -> Packed:
    """Return node records that did not come from a ``Packed`` in packed form; every gradient is listed separately."""
    norms: list[float] = []
    bad: dict[int, BadValues] = {}
    unmeasured: set[int] = set()

    def rows(i: int, stats: Sequence[GradStat | None]) -> list[Measured]:
        """Add the norms of a node's gradients to the lists, and return their entries."""
        found: list[Measured] = []
        for k, stat in enumerate(stats):
            if stat is None:
                continue
            slot = len(norms)
            norms.append(stat.norm if stat.norm is not None else 0.0)
            if stat.norm is None:
                unmeasured.add(slot)
            if stat.bad is not None:
                bad[slot] = stat.bad
            found.append((i, k, slot, stat.shape or (), stat.dtype or ""))
        return found

    out = [m for i, run in enumerate(runs) for m in rows(i, run.grad_inputs)]
    came = [m for i, run in enumerate(runs) for m in rows(i, run.grad_outputs)]
    hooked = [r for r in runs if r.order is not None and r.name != ACCUMULATE and not info(r.name).reshapes]
    hooked.sort(key=lambda r: r.order if r.order is not None else 0)
    order = tuple(r.node.index for r in hooked)
    ran = frozenset(r.node.index for r in runs if r.order is not None)
    return Packed(
        Layout(tuple(r.node for r in runs), None if len(ran) == len(runs) else ran),
        Signature(order, tuple(out), tuple(came)),
        norms,
        [r.seconds or 0.0 for r in hooked],
        frozenset(unmeasured),
        bad,
    )
