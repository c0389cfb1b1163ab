"""The norms of the gradients inside compiled regions, in calls that get a close look, and in those whose gradients are
far beyond those of the calls before: such regions are run again, op by op, with what came to them."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...records import GradStat, Node, NodeRun, RegionRun, Site
from ...torch_internals import private
from ..backward.calls import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord

#: Calls that are kept: the first, and the last; nodes inside the regions of one call.
FIRST, LAST, NODES = 3, 8, 5000
#: The largest norm of a call against the median of as many before it; such calls that are looked into.
OUTGROWN, BEFORE, SUDDEN = 1e3, 6, 20
#: What is run again is believed where its largest gradient is that of the region, but for such a factor.
ALIKE = 4.0

#: Of a node of a region's graph, given the call: the op's name, its line, its module.
Place = Callable[[private.RegionCall, Any], tuple[str, Site | None, str | None]]


class NormsInside:
    """What is known of the inside of regions."""

    def __init__(self, place: Place) -> None:
        self._place = place
        #: By backward call.
        self._kept: dict[int, list[RegionRun]] = {}
        #: By line of the calls, their largest norms, in order.
        self._usual: dict[Site | None, list[float]] = {}
        self._sudden = 0
        #: Calls of regions that were not run again.
        self.too_large = 0

    def outgrown(self, recorded: PendingCallRecord) -> bool:
        """Whether the gradients of a call are far beyond those before."""
        most = max((norm for norm in recorded.norms if norm < math.inf), default=0.0)
        usual = self._usual.setdefault(recorded.site, [])
        grown = len(usual) >= BEFORE and most >= OUTGROWN * usual[len(usual) // 2]
        if most > 0.0:
            insort(usual, most)
            if len(usual) > 100:  # the median stays where it is
                del usual[0], usual[-1]
        self._sudden += grown
        return grown and self._sudden <= SUDDEN

    def look(
        self, running: ActiveBackward, recorded: PendingCallRecord, calls: Iterable[tuple[int, Any, Sequence[Any]]]
    ) -> None:
        """Run `calls` again: each with its node, and what came to it."""
        found: list[RegionRun] = []
        left = NODES
        for node, call, gradients in calls:
            try:
                with private.unseen(), private.unnoticed():
                    inner = private.norms_inside(call, gradients, left)
            except private.TooLarge:
                self.too_large += 1
                continue
            if inner is None or not _agrees(inner, _gave(recorded, node), running.scale):
                continue
            left -= len(inner.nodes)
            found.append(self._record(running, node, call, inner))
        if found:
            self._kept[running.index] = found
            for index in list(self._kept)[FIRST:-LAST]:
                del self._kept[index]

    def _record(self, running: ActiveBackward, node: int, call: Any, inner: private.Inner) -> RegionRun:
        ways = _ways(running, node, call)
        places = {one.made: self._place(call, one.made) for one in inner.nodes if one.made is not None}
        nodes = []
        for i, one in enumerate(inner.nodes):
            op, site, module = places[one.made] if one.made is not None else ("", None, None)
            edges = tuple(_outward(edge, ways) for edge in one.edges)
            made = Node(i, one.name, one.seq, module, 1, site, op, None, edges)
            came, gave = (_stats(norms, running.scale) for norms in (one.came, one.gave))
            nodes.append(NodeRun(made, one.order, None, came, gave))
        into = {m[1]: inner.outputs[i] for i, m in enumerate(call.outputs) if m is not None and i in inner.outputs}
        outputs = tuple(into.get(k) for k in range(max(into, default=-1) + 1))
        return RegionRun(running.index, node, tuple(nodes), outputs, not call.region.draws)

    def records(self) -> tuple[RegionRun, ...]:
        return tuple(one for runs in self._kept.values() for one in runs)


def _gave(recorded: PendingCallRecord, node: int) -> list[float]:
    """The norms of what `node` gave that were measured."""
    slots = [slot for i, _, slot, _, _ in recorded.signature.out if i == node and slot >= 0]
    return [recorded.norms[slot] for slot in slots if slot not in recorded.unmeasured]


def _agrees(inner: private.Inner, gave: Sequence[float], scale: float) -> bool:
    """Whether the region gave what it gives when it runs again."""
    again, most = max(inner.leaves.values(), default=0.0) / scale, max(gave, default=0.0)
    return not gave or most / ALIKE <= again <= ALIKE * most


def _ways(running: ActiveBackward, node: int, call: Any) -> dict[int, int]:
    """Which edge of a region's node goes to what it was given: by position in ``tensors_of(call)``."""
    variables, seqs = dict(running.graph.leaves), running.graph.seqs
    edges = running.graph.plan.edges(node)
    made = {id(arg): of for arg, of in zip(call.args, call.made, strict=True)}
    found: dict[int, int] = {}
    for k, tensor in enumerate(private.tensors_of(call)):
        of = made[id(tensor)]
        for way, edge in enumerate(edges):
            if edge is None:
                continue
            if variables.get(edge[0]) is tensor or (of is not None and (seqs[edge[0]], edge[1]) == of):
                found[k] = way
                break
    return found


def _outward(edge: tuple[int, int] | None, ways: dict[int, int]) -> tuple[int, int] | None:
    if edge is None or edge[0] >= 0:
        return edge
    way = ways.get(-1 - edge[0])
    return None if way is None else (-1 - way, 0)


def _stats(norms: Iterable[float | None], scale: float) -> tuple[GradStat | None, ...]:
    return tuple(None if norm is None else GradStat(None, None, norm / scale) for norm in norms)
