"""Measures gradient norms inside a compiled region by re-executing it op by op, forward and backward."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..graphs.plan import ACCUMULATE
from .compiled_graphs import RegionCall
from .measure import Norms
from .region_reexecution import Notes, outputs_with_gradients, reexecute, run_backward, run_on_own_thread, tensors_of
from .walk import LiveGraph, Plans, walk

#: The share of free memory that the forward may fill: its backward needs as much again.
MAX_MEMORY_SHARE = 0.4
_AVAILABLE = re.compile(r"^MemAvailable:\s*(\d+) kB", re.MULTILINE)


def owned_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes that a tensor owns: 0 for a view.

    A tensor of a ``torch.func`` transform is estimated, because its storage cannot be read.
    """
    try:
        return int(tensor.untyped_storage().nbytes()) if tensor._base is None else 0
    except (NotImplementedError, RuntimeError):
        return int(tensor.numel() * tensor.element_size())


class TooLarge(Exception):
    """The error for a region that is not re-executed: it has too many ops, or takes too much memory."""


@dataclass
class NodeInside:
    """An autograd node of a re-executed region.

    :ivar made: the node of the region's graph; ``None`` if the node copies an input.
    :ivar edges: for each edge, (node number, output index); a negative number -1 - k stands for the input at position k
        of ``tensors_of(call)``.
    :ivar order: the position in the order of execution; ``None`` if it did not run.
    :ivar incoming_norms, outgoing_norms: norms of the incoming and the outgoing gradients.
    """

    name: str
    seq: int
    made: Any
    edges: tuple[tuple[int, int] | None, ...]
    order: int | None = None
    incoming_norms: tuple[float | None, ...] = ()
    outgoing_norms: tuple[float | None, ...] = ()


@dataclass
class RegionNodes:
    """The autograd nodes inside a region, with gradient norms.

    :ivar outputs: for each output of the region that received a gradient: the node that made it and its output index
        there.
    :ivar leaves: gradient norms by position in ``tensors_of(call)``.
    """

    nodes: list[NodeInside]
    outputs: dict[int, tuple[int, int]]
    leaves: dict[int, float]


class BoundedNotes(Notes):
    """Notes that raise ``TooLarge`` if the forward needs more than `limit` bytes."""

    def __init__(self, limit: float) -> None:
        """Begin without notes."""
        super().__init__(False)
        self._bytes_left = limit

    def subtract(self, tensors: Sequence[torch.Tensor]) -> None:
        """Subtract the memory of `tensors` from the bytes that are left.
        :raises TooLarge: none are left.
        """
        self._bytes_left -= sum(map(owned_bytes, tensors))
        if self._bytes_left < 0:
            raise TooLarge

    def begin(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Record the region's inputs; return whether all are finite. Raises ``TooLarge``."""
        self.subtract(tensors)
        return super().begin(tensors)

    def note(self, node: object, given: list[object], before: list[object], out: object) -> None:
        """Record the run of `node`; see ``Notes.note``. Raises ``TooLarge``."""
        super().note(node, given, before, out)
        outs = out if isinstance(out, (tuple, list)) else (out,)
        self.subtract([t for t in outs if type(t) is torch.Tensor])


def norms_inside(call: RegionCall, gradients: Sequence[torch.Tensor | None], most: int) -> RegionNodes | None:
    """Return the nodes and gradient norms inside the backward of a region call.

    ``None`` if no gradient came in, or a non-finite one.

    :param gradients: for each output, its incoming gradient or ``None``.
    :param most: the most autograd nodes.
    :raises TooLarge: it has more nodes, or there is no memory for it.
    """
    if any(isinstance(a, torch.Tensor) and a.is_cuda for a in call.args) and torch.cuda.is_current_stream_capturing():
        return None
    limit = MAX_MEMORY_SHARE * free_memory(call.args)
    own = 2 * sum(map(owned_bytes, tensors_of(call)))  # a copy, and gradients
    if own > limit:
        raise TooLarge
    try:
        found: RegionNodes | None = run_on_own_thread(lambda: _measure_inside(call, gradients, most, limit - own), call)
    except torch.OutOfMemoryError as error:
        raise TooLarge from error
    return found


def free_memory(args: Sequence[object]) -> float:
    """Return the free bytes on the device of `args`; infinity if unknown."""
    device = next((a.device for a in args if isinstance(a, torch.Tensor) and a.is_cuda), None)
    if device is not None:
        own = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + own)
    try:
        found = _AVAILABLE.search(Path("/proc/meminfo").read_text())
    except OSError:  # not Linux
        found = None
    return 1024.0 * int(found[1]) if found is not None else float("inf")


def _measure_inside(
    call: RegionCall, gradients: Sequence[torch.Tensor | None], most: int, limit: float
) -> RegionNodes | None:
    """Run a region call and its backward again, and measure the gradients at each node; see ``norms_inside``.
    :param limit: bytes that the forward may need.
    """
    notes = BoundedNotes(limit)
    out, given = reexecute(call, notes)
    outputs = outputs_with_gradients(out, gradients)
    if not outputs:
        return None
    graph = walk([one.grad_fn for _, one, _ in outputs], Plans())
    if len(graph.nodes) > most:
        raise TooLarge
    inner = _region_nodes(graph, given, notes)
    number = {id(node): i for i, node in enumerate(graph.nodes)}
    norms = Norms(brief=True)
    slots: list[tuple[int, list[int | None], list[int | None]]] = []

    def slots_of(grads: Any) -> list[int | None]:
        """Measure gradients; return for each its slot in the norms, or ``None`` if there is no gradient."""
        return [norms.take(g) if isinstance(g, torch.Tensor) else None for g in grads]

    def after(node: object, made: object) -> Callable[[Any, Any], None]:
        """Return a hook that measures the gradients of `node`."""

        def hook(grad_inputs: object, grad_outputs: object) -> None:
            """Measure the gradients of the node that has just run."""
            slots.append((number[id(node)], slots_of(grad_outputs), slots_of(grad_inputs)))

        return hook

    got = run_backward(outputs, given, {n: None for n in graph.nodes if n.name() != ACCUMULATE}, after)
    leaves = {k: norms.take(g) for k, g in got.items()}
    norms.flush()

    def value(slot: int | None) -> float | None:
        """Return the norm in `slot`; ``None`` if there is none."""
        return None if slot is None or slot in norms.unmeasured else norms.values[slot]

    for order, (i, incoming_norms, outgoing_norms) in enumerate(slots):
        node = inner[i]
        node.order, node.incoming_norms, node.outgoing_norms = (
            order,
            tuple(map(value, incoming_norms)),
            tuple(map(value, outgoing_norms)),
        )
    made_at = {i: (number[id(one.grad_fn)], one.output_nr) for i, one, _ in outputs}
    return RegionNodes(inner, made_at, {k: norm for k, slot in leaves.items() if (norm := value(slot)) is not None})


def _region_nodes(graph: LiveGraph, given: Sequence[object], notes: Notes) -> list[NodeInside]:
    """Return the nodes by number; edges that end in a leaf point to the region's inputs."""
    position = {id(leaf): k for k, leaf in enumerate(given)}
    ends = {i: position.get(id(variable)) for i, variable in graph.leaves}
    found = []
    for i, name in enumerate(graph.plan.names):
        edges: list[tuple[int, int] | None] = []
        for edge in graph.plan.edges(i):
            if edge is not None and edge[0] in ends:
                k = ends[edge[0]]
                edges.append(None if k is None else (-1 - k, 0))
            else:
                edges.append(edge)
        made = notes.of.get(graph.nodes[i]) if name != ACCUMULATE else None
        found.append(NodeInside(name, graph.seqs[i], made, tuple(edges)))
    return found
