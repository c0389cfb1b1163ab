"""One backward call: walk its graph, hook every node, let the native engine run, put the result into records.

N4. The engine passes a gradient on as it is where a node's input has one producer, so it is measured once, where it
    is made. Where several producers meet, the engine adds them up, and the sum is measured at the receiver.
N5. View nodes pass the same values on: not measured.
N6. Hooks hold no gradient past their own call.
N7. Torch frees a deep graph recursively once Python has touched its nodes, which overflows the stack. We keep the
    wrappers of a large graph and drop them root first after the graph itself (``Keeper``).
"""

from __future__ import annotations

import functools
import heapq
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..records import ACCUMULATE_SEQ, BadNode, Raised, Root
from . import private
from .measure import bad_values, dtype_name, stat_of

_norm = torch.linalg.vector_norm
_clock = time.perf_counter

#: Nodes whose backward only reshapes: what goes out has the values that came in (N5).
VIEW_NODES = frozenset(
    f"{name}Backward{i}"
    for name in (
        *("View", "UnsafeView", "Reshape", "ReshapeAlias", "Transpose", "T", "Mt", "Permute", "Squeeze", "Unsqueeze"),
        *("Alias", "Clone", "Flatten", "Unflatten", "ViewAs"),
    )
    for i in range(4)
)

#: Graphs larger than this are freed with care (N7): the measured limit is about 45,000 nodes on an 8 MB stack.
DEEP = 10_000
#: How many culprits one backward call describes in full.
BAD_LIMIT = 20


class Graph:
    """The nodes that a backward can reach, root first, and their edges by index."""

    __slots__ = ("edges", "names", "nodes", "seqs")

    def __init__(self, roots: Sequence[Any]) -> None:
        self.nodes: list[Any] = []
        self.names: list[str] = []
        self.seqs: list[int] = []
        self.edges: list[tuple[tuple[int, int] | None, ...]] = []
        index: dict[Any, int] = {}
        nodes = self.nodes
        for root in roots:
            if root is not None and root not in index:
                index[root] = len(nodes)
                nodes.append(root)
        at = 0
        while at < len(nodes):
            node = nodes[at]
            at += 1
            self.names.append(node.name())
            self.seqs.append(node._sequence_nr())
            row: list[tuple[int, int] | None] = []
            for child, number in node.next_functions:
                if child is None:
                    row.append(None)
                    continue
                i = index.get(child)
                if i is None:
                    i = index[child] = len(nodes)
                    nodes.append(child)
                row.append((i, number))
            self.edges.append(tuple(row))

    def __len__(self) -> int:
        return len(self.nodes)


class Watch:
    """Hooks on the nodes of one backward call, and what they saw."""

    def __init__(self, graph: Graph, roots: Sequence[Any], changed: frozenset[int] = frozenset()) -> None:
        self.graph = graph
        n = len(graph)
        self.order: list[int] = []
        self.seconds: list[float] = []
        #: (node, output) -> (shape, dtype, norm), as made by the node.
        self.made: dict[tuple[int, int], tuple[Any, Any, Any]] = {}
        #: (node, input) -> the same for what came in, where it was measured apart (N4).
        self.came: dict[tuple[int, int], tuple[Any, Any, Any]] = {}
        self.bad: dict[tuple[int, int], Any] = {}
        self.bad_in: set[int] = set()
        self.bad_nodes: list[BadNode] = []
        self.unmeasured = 0
        self._handles: list[Any] = []
        producers: dict[tuple[int, int], int] = {}
        for row in graph.edges:
            for edge in row:
                if edge is not None:
                    producers[edge] = producers.get(edge, 0) + 1
        met = {edge[0] for edge, count in producers.items() if count > 1}
        met.update(i for i in range(n) if graph.seqs[i] in changed)
        met.update(range(min(n, len(roots))))
        self._met = met
        self.last = 0.0

    def start(self) -> None:
        handles, nodes, names = self._handles, self.graph.nodes, self.graph.names
        for i, node in enumerate(nodes):
            if i in self._met:
                handles.append(node.register_prehook(functools.partial(self._before, i)))
            name = names[i]
            if name in VIEW_NODES:
                handles.append(node.register_hook(functools.partial(self._after_view, i)))
            else:
                handles.append(node.register_hook(functools.partial(self._after, i)))
        self.last = _clock()

    def stop(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _before(self, i: int, grad_outputs: Any) -> None:
        for k, g in enumerate(grad_outputs):
            if g is not None:
                self._measure(self.came, i, k, g, True)

    def _after_view(self, i: int, grad_inputs: Any, grad_outputs: Any) -> None:
        self.order.append(i)
        now = _clock()
        self.seconds.append(now - self.last)
        if i in self.bad_in:
            for edge in self.graph.edges[i]:
                if edge is not None:
                    self.bad_in.add(edge[0])
        self.last = now

    def _after(self, i: int, grad_inputs: Any, grad_outputs: Any) -> None:
        now = _clock()
        self.order.append(i)
        self.seconds.append(now - self.last)
        made = self.made
        for k, g in enumerate(grad_inputs):
            if g is not None:
                try:
                    norm = _norm(g).item() if g.device.type == "cpu" else _norm(g)
                except (RuntimeError, NotImplementedError, TypeError):
                    norm = None
                    self.unmeasured += 1
                made[i, k] = (g.shape, g.dtype, norm)
                if norm.__class__ is float and norm - norm != 0.0:
                    self._suspect(i, k, g, grad_outputs)
        self.last = _clock()

    def _measure(self, into: dict[Any, Any], i: int, k: int, g: Any, incoming: bool) -> None:
        try:
            norm = _norm(g).item() if g.device.type == "cpu" else _norm(g)
        except (RuntimeError, NotImplementedError, TypeError):
            norm = None
            self.unmeasured += 1
        into[i, k] = (g.shape, g.dtype, norm)
        if norm.__class__ is float and norm - norm != 0.0 and bad_values(g) is not None:
            self.bad_in.add(i)

    def _suspect(self, i: int, k: int, g: Any, grad_outputs: Any) -> None:
        """A gradient whose norm is not finite (N6: what is kept of it are counts)."""
        values = bad_values(g)
        if values is None:
            return
        self.bad[i, k] = values
        edge = self.graph.edges[i][k] if k < len(self.graph.edges[i]) else None
        clean = i not in self.bad_in and not any(bad_values(o) is not None for o in grad_outputs if o is not None)
        if edge is not None:
            self.bad_in.add(edge[0])
        if clean and len(self.bad_nodes) < BAD_LIMIT:
            saved = tuple(stat_of(name, t) for name, t in private.saved_tensors(self.graph.nodes[i]))
            zero = any(o is not None and bool((o == 0).any()) for o in grad_outputs)
            self.bad_nodes.append(BadNode(i, k, values, zero, saved))

    def settle(self) -> None:
        """Read the norms that were left on an accelerator: one synchronisation."""
        for table in (self.made, self.came):
            waiting = [(key, v) for key, v in table.items() if isinstance(v[2], torch.Tensor)]
            for key, (shape, dtype, norm) in waiting:
                table[key] = (shape, dtype, float(norm))

    def running(self) -> tuple[int | None, bool]:
        """The node that the engine was running when it raised, and whether that is certain.

        The engine takes, of the nodes whose producers have all run, the one with the highest sequence number.
        """
        graph, done = self.graph, set(self.order)
        waiting = [0] * len(graph)
        for row in graph.edges:
            for edge in row:
                if edge is not None:
                    waiting[edge[0]] += 1
        for i in self.order:
            for edge in graph.edges[i]:
                if edge is not None:
                    waiting[edge[0]] -= 1
        ready = [(-graph.seqs[i], i) for i in range(len(graph)) if i not in done and waiting[i] == 0]
        if not ready:
            return None, False
        heapq.heapify(ready)
        first = heapq.heappop(ready)
        return first[1], not ready or ready[0][0] != first[0] or first[0] != -ACCUMULATE_SEQ


class Keeper:
    """Holds the wrappers of large graphs until the graph is gone, then drops them root first (N7)."""

    def __init__(self) -> None:
        self._kept: list[tuple[list[Any], list[weakref.ref[Any]]]] = []

    def keep(self, nodes: list[Any], roots: Sequence[torch.Tensor]) -> None:
        if len(nodes) > DEEP:
            self._kept.append((nodes, [weakref.ref(r) for r in roots]))

    def release(self, everything: bool = False) -> None:
        """Drop what belongs to graphs whose roots are gone. `everything`: also the rest, at the end of a session."""
        still = []
        for nodes, roots in self._kept:
            if not everything and any(r() is not None for r in roots):
                still.append((nodes, roots))
                continue
            for i in range(len(nodes)):
                nodes[i] = None
        self._kept = still


def node_of(tensor: Any) -> Any:
    """The node that a gradient of `tensor` enters first: its ``grad_fn``, or the accumulator of a leaf."""
    if isinstance(tensor, torch.autograd.graph.GradientEdge):
        return tensor.node
    if tensor.grad_fn is not None:
        return tensor.grad_fn
    if tensor.requires_grad:
        return torch.autograd.graph.get_gradient_edge(tensor).node
    return None


def root_record(tensor: Any, node: int | None) -> Root:
    if not isinstance(tensor, torch.Tensor):
        return Root(node, (), "", None, None)
    value = None
    if type(tensor) is torch.Tensor and tensor.numel() == 1 and tensor.device.type == "cpu" and not tensor.is_complex():
        value = float(tensor.detach())
    return Root(node, tuple(tensor.shape), dtype_name(tensor.dtype), value, bad_values(tensor))


def describe(value: Any) -> str:
    """An argument of a backward call as a person would name it."""
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(describe(v) for v in value[:8]) + (", ..." if len(value) > 8 else "") + "]"
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__


def raised_record(watch: Watch, error: BaseException) -> Raised:
    node, certain = watch.running()
    return Raised(type(error).__name__, str(error), node, certain)


EntryPoint = Callable[..., Any]
