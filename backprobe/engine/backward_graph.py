"""The graph of one backward call: its nodes, their provenance, and which have run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..basics.errors import BackprobeError
from ..basics.text import without_controls
from ..graphs.plan import ACCUMULATE, engine_order
from ..observe.backward.nonfinite_origin import NonFiniteOrigin, nonfinite_origin
from ..records import ACCUMULATE_SEQ
from ..torch_internals.entry_points import BY_KIND, as_list, describe, needed_nodes, node_of
from ..torch_internals.walk import LiveGraph, Plans, walk
from .provenance import NOWHERE, Forward, Found, Provenance


@dataclass(frozen=True)
class NodeInfo:
    """A node with its names for display.

    :ivar index: its number in this call, roots first.
    :ivar seq: torch's sequence number; ``None`` for the accumulator of a leaf.
    :ivar place: module, line, op and parameter, as far as they are known.
    """

    index: int
    name: str
    seq: int | None
    place: Provenance

    @property
    def module(self) -> str | None:
        """The path of the module that the node belongs to."""
        return self.place.module

    @property
    def parameter(self) -> str | None:
        """The name of the parameter to whose gradient the node adds."""
        return self.place.parameter

    @property
    def label(self) -> str:
        """The node's name, with its parameter if it has one."""
        if self.parameter is not None:
            return f"{self.name}({self.parameter or 'unnamed leaf'})"
        return self.name

    def __str__(self) -> str:
        """Return the node as one line of text: its label, module and line."""
        where = [self.label]
        if self.place.module is not None:
            where.append(f"in {self.place.name}")
        if self.place.site is not None:
            where.append(f"at {self.place.site}")
        return without_controls(" ".join(where))


class BackwardGraph:
    """The graph that one backward call runs.

    :param kind: one of ``BY_KIND``.
    :param depth: 1, or more in a backward that a node of another backward runs.
    :param plans: cache of plans shared with other calls.
    :ivar step: training step, counted from 0, if known.
    :raises TypeError: the function does not take these arguments; the caller lets torch raise its own error.
    """

    def __init__(
        self, kind: str, args: Any, kwargs: Any, forward: Forward, depth: int = 1, plans: Plans | None = None
    ) -> None:
        """Walk the graph of the call with the arguments `args` and `kwargs`.

        :raises TypeError: the function does not take these arguments.
        """
        self.step: int | None = None
        self.kind, self.forward, self.depth = kind, forward, depth
        entry = BY_KIND[kind]
        arguments = entry.bind(args, kwargs)
        if arguments is None:
            raise TypeError(f"{kind} does not take these arguments")
        self.roots: Sequence[object] = as_list(arguments.pop(entry.roots))
        self.create_graph = bool(arguments.get("create_graph"))
        keep = arguments.get("retain_graph")
        #: Whether the graph is kept after the call.
        self.retained = self.create_graph if keep is None else bool(keep)
        self.arguments = {name: describe(value) for name, value in arguments.items()}
        starts = [node_of(root) for root in self.roots]
        graph = walk(starts, plans or Plans())
        self.nodes, self.seqs, self.plan = graph.nodes, graph.seqs, graph.plan
        self._walked: LiveGraph | None = graph
        number = {node: i for i, node in enumerate(self.nodes[: len(starts)])}
        self.starts = sorted({number[s] for s in starts if s is not None})
        self.needed = needed_nodes(kind, arguments, graph)
        #: Nodes that have run, in order.
        self.ran: list[int] = []
        self._done: set[int] = set()
        self._infos: dict[int, NodeInfo] = {}
        self._found: Found = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def runs(self, i: int) -> bool:
        """Return whether this call needs node `i`."""
        return self.needed is None or i in self.needed

    @property
    def text(self) -> str:
        """The call and its arguments."""
        given = ", ".join(f"{k}={v}" for k, v in self.arguments.items() if v not in ("None", "False"))
        return f"{self.kind}({given})"

    def leaf(self, i: int) -> torch.Tensor | None:
        """Return the tensor to whose gradient node `i` adds; ``None`` for any other node."""
        return self.nodes[i].variable if self.seqs[i] == ACCUMULATE_SEQ else None

    @property
    def count(self) -> int:
        """Number of nodes that this call runs."""
        return len(self.nodes) if self.needed is None else len(self.needed)

    @property
    def done(self) -> set[int]:
        """The nodes that have run. Callers must not keep or change the set."""
        if len(self._done) > len(self.ran):
            self._done = set()
        self._done.update(self.ran[len(self._done) :])
        return self._done

    @cached_property
    def places(self) -> list[Provenance]:
        """The provenance of each node, computed on first use."""
        if not self.nodes:  # the call is over
            return [NOWHERE] * len(self.seqs)
        return self.forward.places(self.nodes, self.seqs, self._found)

    def may_fit(self, fits: Callable[[Provenance], bool]) -> bool:
        """Return whether some node's provenance may match, without checking each node."""
        if "places" in self.__dict__:
            return True
        leaves = [self.nodes[i] for i in self.plan.leaves]
        return any(map(fits, self.forward.any_place(leaves, self.seqs, self._found)))

    def name(self, i: int) -> str:
        """Return the name of node `i` for display."""
        return short(self.plan.names[i])

    def info(self, i: int) -> NodeInfo:
        """Return number, name and place of node `i`."""
        found = self._infos.get(i)
        if found is None:
            seq = self.seqs[i]
            found = NodeInfo(i, self.name(i), None if seq == ACCUMULATE_SEQ else seq, self.places[i])
            self._infos[i] = found
        return found

    @property
    def infos(self) -> list[NodeInfo]:
        """All nodes with their names."""
        return [self.info(i) for i in range(len(self.seqs))]

    @cached_property
    def order(self) -> list[int]:
        """The order in which the engine is expected to run the nodes; accumulators may run in another."""
        return engine_order(self.plan, self.seqs, self.needed)

    @cached_property
    def producers(self) -> list[list[int]]:
        """Return for each node the numbers of the nodes that give it a gradient in this call."""
        into: list[list[int]] = [[] for _ in self.nodes]
        for i in range(len(self.nodes)):
            if self.runs(i):
                for edge in self.plan.edges(i):
                    if edge is not None:
                        into[edge[0]].append(i)
        return into

    def waiting(self) -> list[int]:
        """Return the nodes that will still run, in the expected order."""
        return [i for i in self.order if i not in self.done]

    def ready(self) -> list[int]:
        """Return the waiting nodes that have all their gradients."""
        return [i for i in self.waiting() if self.done.issuperset(self.producers[i])]

    def path(self, i: int) -> list[int]:
        """Return a shortest path from a root of the call to node `i`, both included."""
        came: dict[int, int | None] = {i: None}
        starts = {s for s in self.starts if self.runs(s)}
        queue = [i]
        for at in queue:  # grows as we go
            if at in starts:
                found: list[int] = []
                step: int | None = at
                while step is not None:
                    found.append(step)
                    step = came[step]
                return found
            for producer in self.producers[at]:
                if producer not in came:
                    came[producer] = at
                    queue.append(producer)
        return [i]

    def edges(self, i: int) -> list[tuple[int, int] | None]:
        """Return the edges of node `i`, as (node, input) pairs; ``None`` for an input without a gradient."""
        return self.plan.edges(i)

    def nonfinite_origin(self, i: int) -> NonFiniteOrigin | None:
        """Return the forward op that first produced a non-finite value among the saved tensors of node `i` and before.

        ``None`` if unknown. Nodes that have run have no saved tensors any more.
        """
        return None if self._walked is None else nonfinite_origin(self._walked, [i])

    def release(self) -> None:
        """Drop all references to the graph."""
        self.nodes, self.roots, self._walked = [], (), None


def short(name: str) -> str:
    """Return a node's name for display."""
    return "AccumulateGrad" if name == ACCUMULATE else name


def call_kind(tensors: object, call: str | None) -> str:
    """Return ``Tensor.backward``, ``autograd.backward`` or ``autograd.grad`` from arguments of ``backprobe.debug``.

    :raises BackprobeError: `call` is none of these, nor ``backward`` or ``grad``.
    """
    if call in ("grad", "autograd.grad"):
        return "autograd.grad"
    if call == "autograd.backward" or (call in (None, "backward") and not isinstance(tensors, torch.Tensor)):
        return "autograd.backward"
    if call in (None, "backward", "Tensor.backward"):
        return "Tensor.backward"
    raise BackprobeError(f"call is {call!r}; it is 'backward' (as loss.backward or autograd.backward) or 'grad'")
