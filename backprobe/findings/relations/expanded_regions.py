"""Backward calls in which the nodes inside a re-executed compiled region replace its single node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ...basics.torch_texts import COMPILED
from ...records import ACCUMULATE_SEQ, BackwardCall, Node, NodeRun, RegionRun

if TYPE_CHECKING:
    from ...traces import Trace


class Opened:
    """Iterates over the trace's backward calls with their compiled regions expanded."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._regions: dict[int, list[RegionRun]] = {}
        for one in trace.facts.of(RegionRun):
            self._regions.setdefault(one.backward, []).append(one)

    def __iter__(self) -> Iterator[BackwardCall]:
        return self.of(self._trace.backwards)

    def of(self, calls: Iterable[BackwardCall]) -> Iterator[BackwardCall]:
        """Yield the calls, those with re-executed compiled regions with the nodes inside these regions."""
        for call in calls:
            regions = self._regions.get(call.index)
            yield opened(call, regions) if regions else call

    def comparable(self) -> Iterator[BackwardCall]:
        """Yield all calls with expanded regions; if any call has one, leave out those whose regions are not
        expanded.
        """
        for call in self._trace.backwards:
            regions = self._regions.get(call.index)
            if regions:
                yield opened(call, regions)
            elif not self._regions or not any(run.name.startswith(COMPILED) for run in call.nodes):
                yield call

    def last(self, count: int) -> list[BackwardCall]:
        """Return the last `count` calls that have expanded regions."""
        last = sorted(self._regions)[-count:]
        return [*self.of(call for call in self._trace.backwards if call.index in last)] if last else []

    def sure(self, step: int | None) -> bool:
        """Return whether all expanded regions of `step` show exactly what ran there; also if it has none."""
        indices = {call.index for call in self._trace.backwards if call.step == step} if self._regions else set()
        return all(one.sure for i in indices for one in self._regions.get(i, ()))


def opened(call: BackwardCall, regions: Iterable[RegionRun]) -> BackwardCall:
    """Return `call` with the nodes of `regions` appended; its own nodes keep their indices.

    A region's own node passes on the gradient that it receives. Sequence numbers are renumbered in creation order.
    """
    nodes: list[NodeRun] = [*call.nodes]
    #: Creation order of each node: a region's node comes after all nodes inside it.
    made: list[tuple[int, int, int]] = [(run.node.seq, 1, 0) for run in nodes]
    for region in regions:
        base, outer = len(nodes), call.nodes[region.node].node
        for run in region.nodes:
            edges = tuple(_placed(edge, base, outer) for edge in run.node.edges)
            nodes.append(replace(run, node=replace(run.node, index=base + run.node.index, edges=edges)))
            made.append((outer.seq, 0, run.node.seq))
        into = tuple(None if edge is None else (base + edge[0], edge[1]) for edge in region.outputs)
        shut = nodes[region.node]
        nodes[region.node] = replace(shut, node=replace(outer, edges=into), order=None, grad_inputs=())
    for seq, i in enumerate(sorted(range(len(nodes)), key=made.__getitem__)):
        run = nodes[i]
        if run.node.seq != ACCUMULATE_SEQ:
            nodes[i] = replace(run, node=replace(run.node, seq=seq))
    return replace(call, nodes=nodes)


def _placed(edge: tuple[int, int] | None, base: int, outer: Node) -> tuple[int, int] | None:
    """Return the edge in the call's graph for an edge inside a region; ``None`` if there is none.

    :param edge: a node of the region and its input; negative nodes number the edges of the region's own node.
    :param base: the index of the region's first node in the call.
    :param outer: the region's own node.
    """
    if edge is None or edge[0] >= 0:
        return None if edge is None else (base + edge[0], edge[1])
    way = -1 - edge[0]
    return outer.edges[way] if way < len(outer.edges) else None
