"""Measures the norms of gradients inside compiled regions, by executing regions again op by op with their gradients.

This is done in closely inspected calls, and in calls whose gradients are far larger than those of earlier calls.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ... import thresholds
from ...records import GradStat, Node, NodeRun, RegionRun, Site
from ...torch_internals import private
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord

if TYPE_CHECKING:
    import torch

#: Maximum number of first backward calls that are kept.
MAX_FIRST_CALLS = 3
#: Maximum number of last backward calls that are kept.
MAX_LAST_CALLS = 8
#: Maximum number of nodes inside the regions of one call.
MAX_REGION_NODES = 5000
#: Maximum number of calls with sudden growth that are examined.
MAX_SUDDEN_CALLS = 20

#: Function of a region call and a node of its graph: returns the op's name, its line and its module.
Place = Callable[[private.RegionCall, Any], tuple[str, Site | None, str | None]]


class RegionNorms:
    """Measured gradient norms inside compiled regions."""

    def __init__(self, place: Place) -> None:
        """Start without measurements. `place` names the op, line and module of a node inside a region."""
        self._place = place
        #: By number of the backward call.
        self._region_runs: dict[int, list[RegionRun]] = {}
        #: By line of the backward calls: their largest norms, sorted.
        self._earlier_norms: dict[Site | None, list[float]] = {}
        self._sudden_growth_count = 0
        #: Number of region calls that were not executed again because of their size.
        self.too_large = 0

    def has_sudden_growth(self, recorded: PendingCallRecord) -> bool:
        """Add a call, and return whether its gradients are far larger than in earlier calls at the same line.

        The answer is ``False`` once ``MAX_SUDDEN_CALLS`` such calls were examined.
        """
        most = max((norm for norm in recorded.norms if norm < math.inf), default=0.0)
        usual = self._earlier_norms.setdefault(recorded.site, [])
        grown = (
            len(usual) >= thresholds.REGION_MIN_EARLIER_CALLS
            and most >= thresholds.REGION_SUDDEN_GROWTH * usual[len(usual) // 2]
        )
        if most > 0.0:
            insort(usual, most)
            if len(usual) > 100:  # the median is unchanged
                del usual[0], usual[-1]
        self._sudden_growth_count += grown
        return grown and self._sudden_growth_count <= MAX_SUDDEN_CALLS

    def measure(
        self,
        running: ActiveBackward,
        recorded: PendingCallRecord,
        calls: Iterable[tuple[int, private.RegionCall, Sequence[torch.Tensor | None]]],
    ) -> None:
        """Execute `calls` again and store the norms of the gradients inside.

        :param calls: (node, region call, gradients that its outputs received).
        """
        found: list[RegionRun] = []
        left = MAX_REGION_NODES
        for node, call, gradients in calls:
            try:
                with private.disable_function_modes(), private.hide_ops():
                    inner = private.norms_inside(call, gradients, left)
            except private.TooLarge:
                self.too_large += 1
                continue
            if inner is None or not _has_similar_gradients(inner, _outgoing_norms(recorded, node), running.scale):
                continue
            left -= len(inner.nodes)
            found.append(self._record(running, node, call, inner))
        if found:
            self._region_runs[running.index] = found
            for index in list(self._region_runs)[MAX_FIRST_CALLS:-MAX_LAST_CALLS]:
                del self._region_runs[index]

    def _record(
        self, running: ActiveBackward, node: int, call: private.RegionCall, inner: private.RegionNodes
    ) -> RegionRun:
        """Return the record of the nodes inside a region, with the norms that its re-execution measured.

        :param node: the region's node in the graph of the call; `inner`: the nodes inside.
        """
        edges_to_inputs = _edges_to_inputs(running, node, call)
        places = {one.made: self._place(call, one.made) for one in inner.nodes if one.made is not None}
        nodes = []
        for i, one in enumerate(inner.nodes):
            op, site, module = places[one.made] if one.made is not None else ("", None, None)
            edges = tuple(_outer_edge(edge, edges_to_inputs) for edge in one.edges)
            made = Node(i, one.name, one.seq, module, 1, site, op, None, edges)
            incoming, gave = (_stats(norms, running.scale) for norms in (one.incoming_norms, one.outgoing_norms))
            nodes.append(NodeRun(made, one.order, None, incoming, gave))
        into = {m[1]: inner.outputs[i] for i, m in enumerate(call.outputs) if m is not None and i in inner.outputs}
        outputs = tuple(into.get(k) for k in range(max(into, default=-1) + 1))
        return RegionRun(running.index, node, tuple(nodes), outputs, not call.region.draws)

    def records(self) -> tuple[RegionRun, ...]:
        """Return the records of all regions that were executed again."""
        return tuple(one for runs in self._region_runs.values() for one in runs)


def _outgoing_norms(recorded: PendingCallRecord, node: int) -> list[float]:
    """Return the measured norms of the gradients that `node` gave."""
    slots = [slot for i, _, slot, _, _ in recorded.signature.out if i == node and slot >= 0]
    return [recorded.norms[slot] for slot in slots if slot not in recorded.unmeasured]


def _has_similar_gradients(inner: private.RegionNodes, gave: Sequence[float], scale: float) -> bool:
    """Return whether the re-execution gave gradients of the same size as the region itself."""
    reexecuted, most = max(inner.leaves.values(), default=0.0) / scale, max(gave, default=0.0)
    return (
        not gave
        or most / thresholds.REGION_MAX_REEXECUTION_RATIO
        <= reexecuted
        <= thresholds.REGION_MAX_REEXECUTION_RATIO * most
    )


def _edges_to_inputs(running: ActiveBackward, node: int, call: private.RegionCall) -> dict[int, int]:
    """Return, for each position in ``tensors_of(call)``, the edge of the region's node that leads to this input."""
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


def _outer_edge(edge: tuple[int, int] | None, edges_to_inputs: dict[int, int]) -> tuple[int, int] | None:
    """Return an edge of a node inside a region; one to an input of the region becomes -1 minus the outer edge.

    ``None`` if nothing in the outer graph takes that gradient.
    """
    if edge is None or edge[0] >= 0:
        return edge
    outer = edges_to_inputs.get(-1 - edge[0])
    return None if outer is None else (-1 - outer, 0)


def _stats(norms: Iterable[float | None], scale: float) -> tuple[GradStat | None, ...]:
    """Return norms as gradient statistics, with the loss scale divided out."""
    return tuple(None if norm is None else GradStat(None, None, norm / scale) for norm in norms)
