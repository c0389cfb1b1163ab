"""The engine's scheduling of a backward, in Python: the next node (``graphs/order.py``) and the summation of gradients.

Note [Gradients that meet]: They are summed one by one as they arrive: old plus new, or new plus old if the old one is
sparse. Never in place: the sum has the same bits, and recorded gradients stay unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..graphs.order import Schedule
from ..torch_internals import private
from .backward_graph import BackwardGraph


class GraphTask:
    """The state of one backward between two nodes.

    :param roots: (node, output index, gradient) for each tensor that the backward starts from.
    :param captured: nodes whose incoming gradients are requested.
    """

    def __init__(
        self, graph: BackwardGraph, roots: Sequence[tuple[int, int, torch.Tensor | None]], captured: frozenset[int]
    ) -> None:
        """Take the graph, and reset to the state before any node has run."""
        self._graph, self._roots = graph, roots
        self._active = None if graph.needed is None else graph.needed | captured
        self._widths = [len(node._input_metadata) for node in graph.nodes]
        self.begin()

    def begin(self) -> None:
        """Reset to the state before any node has run: only the gradients of the roots have arrived."""
        plan = self._graph.plan
        begun = [i for i, _, _ in self._roots]
        self._schedule = Schedule(plan.starts, plan.targets, self._graph.seqs, begun, self._active)
        self._came: dict[int, list[torch.Tensor | None]] = {}
        self._deliver(self._roots)

    @property
    def next(self) -> int | None:
        """The next node to run; ``None`` if all have run."""
        return self._schedule.next

    def incoming(self, i: int) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients that have arrived at node `i` so far."""
        return tuple(self._came[i])

    def ran(self, i: int, outgoing: Sequence[object]) -> None:
        """Deliver the outgoing gradients of node `i`, the next one, after it has run."""
        del self._came[i]
        edges = self._graph.edges(i)
        self._deliver([(*edge, grad) for edge, grad in zip(edges, outgoing, strict=False) if edge is not None])
        self._schedule.ran(i)

    def _deliver(self, grads: Sequence[tuple[int, int, object]]) -> None:
        """Add gradients to those that arrived at their nodes; nodes that this backward does not run are skipped.
        :param grads: (node, input index, gradient).
        """
        with private.disable_function_modes(), torch.set_grad_enabled(self._graph.create_graph):
            for to, number, grad in grads:
                if self._active is None or to in self._active:
                    came = self._came.setdefault(to, [None] * self._widths[to])
                    came[number] = grad if came[number] is None else summed(came[number], grad)


def summed(old: torch.Tensor, new: torch.Tensor | None) -> torch.Tensor:
    """Sum two gradients that arrive at the same input; see Note [Gradients that meet]."""
    if new is None:
        return old
    sparse = old.layout in (torch.sparse_coo, torch.sparse_csr) and not torch.is_grad_enabled()
    return new + old if sparse else old + new
