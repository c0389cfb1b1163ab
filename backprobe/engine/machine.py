"""The engine's part of a backward, in Python: which node is next, and what meets on its way.

M1. The order is the engine's: of the nodes whose producers have all run the one with the highest sequence number.
    Accumulators all have the highest there is; among equals the order is what ``std::priority_queue`` makes of it, so
    the heap here moves its entries as libstdc++ does.
M2. Producers are counted over all that the roots can reach, also over nodes that are not needed, as the engine does.
M3. Gradients that meet are summed one by one as they come: what is there plus what comes, the other way round where
    what is there is sparse. Never in place: the sum has the same bits, and what was recorded stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..torchside import private
from .called import CallGraph


class Ready:
    """Nodes that can run, the one with the highest sequence number first (M1)."""

    def __init__(self, seqs: Sequence[int]) -> None:
        self._seqs = seqs
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def top(self) -> int:
        return self._heap[0]

    def push(self, node: int) -> None:
        self._heap.append(node)
        self._up(len(self._heap) - 1, node)

    def pop(self) -> int:
        heap, seqs = self._heap, self._seqs
        first, last = heap[0], heap.pop()
        count = len(heap)
        if count:
            hole = child = 0
            while child < (count - 1) // 2:
                child = 2 * (child + 1)
                if seqs[heap[child]] < seqs[heap[child - 1]]:
                    child -= 1
                heap[hole] = heap[child]
                hole = child
            if count % 2 == 0 and child == (count - 2) // 2:
                child = 2 * child + 1
                heap[hole] = heap[child]
                hole = child
            self._up(hole, last)
        return first

    def _up(self, hole: int, node: int) -> None:
        heap, seqs = self._heap, self._seqs
        while hole > 0:
            parent = (hole - 1) // 2
            if not seqs[heap[parent]] < seqs[node]:
                break
            heap[hole] = heap[parent]
            hole = parent
        heap[hole] = node


class Machine:
    """The state of one backward between two nodes.

    :param roots: (node, number of its output, gradient) for each tensor that the backward starts from.
    :param captured: nodes whose incoming gradients are asked for.
    """

    def __init__(self, graph: CallGraph, roots: Sequence[tuple[int, int, Any]], captured: frozenset[int]) -> None:
        self._graph, self._roots, self._captured = graph, roots, captured
        self._producers = [0] * len(graph)
        for i in range(len(graph)):
            for edge in graph.edges(i):
                if edge is not None:
                    self._producers[edge[0]] += 1
        for node, _, _ in roots:
            self._producers[node] += 1
        self._widths = [len(node._input_metadata) for node in graph.nodes]
        self.begin()

    def begin(self) -> None:
        """Back to where nothing has run."""
        self._waiting = list(self._producers)
        self._ready = Ready(self._graph.seqs)
        self._came: dict[int, list[Any]] = {}
        self._deliver(self._roots)

    def active(self, i: int) -> bool:
        """Whether this call does anything at node `i`."""
        return self._graph.runs(i) or i in self._captured

    @property
    def next(self) -> int | None:
        """The node that is to run; ``None`` when all have."""
        return self._ready.top if len(self._ready) else None

    def incoming(self, i: int) -> tuple[Any, ...]:
        """What has come for node `i` so far."""
        return tuple(self._came[i])

    def ran(self, i: int, outgoing: Sequence[Any]) -> None:
        """Node `i`, the next one, has run: pass on what it gave."""
        popped = self._ready.pop()
        assert popped == i
        del self._came[i]
        edges = self._graph.edges(i)
        self._deliver(
            [(edge[0], edge[1], grad) for edge, grad in zip(edges, outgoing, strict=False) if edge is not None]
        )

    def _deliver(self, grads: Sequence[tuple[int, int, Any]]) -> None:
        with private.unseen(), torch.set_grad_enabled(self._graph.create_graph):
            for to, number, grad in grads:
                self._waiting[to] -= 1
                if not self.active(to):
                    continue
                came = self._came.setdefault(to, [None] * self._widths[to])
                came[number] = grad if came[number] is None else summed(came[number], grad)
                if self._waiting[to] == 0:
                    self._ready.push(to)


def summed(old: Any, new: Any) -> Any:
    """Two gradients that meet (M3)."""
    if new is None:
        return old
    sparse = old.layout in (torch.sparse_coo, torch.sparse_csr) and not torch.is_grad_enabled()
    return new + old if sparse else old + new
