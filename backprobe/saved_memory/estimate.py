"""Estimates the memory that checkpointing a module would save, from the graph of a forward without checkpoints.

A checkpointed call keeps its inputs and recomputes the rest. So it frees the memory that only nodes inside the call
keep; memory that nodes outside keep too stays, and so do its inputs. Edges that leave the call's nodes are the inputs
that require grad. Other inputs (a mask, the batch) do not appear in a graph; usually something else holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..graphs.plan import ACCUMULATE
from ..ops import info
from ..records import ModuleCall, SavedModule
from ..torch_internals.walk import LiveGraph

#: A tensor of the graph: the number of the node that made it, and of that node's output.
Made = tuple[int, int]


@dataclass
class Stored:
    """A storage: its bytes, the nodes that saved it, whether anything else holds it, and the tensors that use it."""

    nbytes: int
    savers: Iterable[int]
    held: bool
    made: Iterable[Made]


class Estimate:
    """Estimates the checkpoint savings for one graph.

    :param within: for each node the index of the innermost call in which it was created, -1 for none.
    """

    def __init__(self, graph: LiveGraph, calls: Sequence[ModuleCall], within: Sequence[int]) -> None:
        """Take the graph, the module calls of its forward, and for each node the number of the innermost call (-1:
        none).
        """
        self._graph, self._calls, self._within = graph, calls, within
        #: Bytes that only nodes inside a call keep.
        self._inside = [0] * len(calls)
        #: Tensor -> (is held by something else, its bytes, the innermost call that contains all nodes that saved it).
        self._kept: dict[Made, tuple[bool, int, int, int]] = {}

    def modules(self, storages: Iterable[Stored]) -> tuple[SavedModule, ...]:
        """Return a row for each module that was called, with the bytes that a checkpoint around it would save, largest
        first.
        """
        for number, stored in enumerate(storages):
            self._add(number, stored)
        rows: dict[str, list[int]] = {}
        for call, inputs in zip(self._calls, self._inputs(), strict=True):
            row = rows.setdefault(call.path, [call.index, 0, 0, 0])
            row[1] += 1
            row[2] += self._inside[call.index]
            row[3] += inputs
        found = [
            SavedModule(path, self._calls[first].class_name, count, inside, inputs)
            for path, (first, count, inside, inputs) in rows.items()
            if path
        ]
        return tuple(sorted(found, key=lambda m: -m.saves))

    def _add(self, number: int, stored: Stored) -> None:
        """Add the bytes of a storage to the calls that contain all nodes which saved it. `number`: its own."""
        common = -2
        for node in stored.savers:
            common = self._within[node] if common == -2 else self._common(common, self._within[node])
        for tensor in stored.made:
            self._kept[self._source(tensor)] = (stored.held, number, stored.nbytes, common)
        while common >= 0 and not stored.held:
            self._inside[common] += stored.nbytes
            common = self._calls[common].parent

    def _common(self, a: int, b: int) -> int:
        """Return the number of the innermost module call that contains the calls `a` and `b`; -1 if none does."""
        calls = self._calls
        while a != b:
            if a < 0 or b < 0:
                return -1
            if calls[a].depth >= calls[b].depth:
                a = calls[a].parent
            else:
                b = calls[b].parent
        return a

    def _source(self, tensor: Made) -> Made:
        """Return the output of a node (number, index) of which `tensor` is a view; itself if it is none."""
        node, output = tensor
        plan = self._graph.plan
        while info(plan.names[node]).is_view:
            edge = plan.edges(node)[0]
            if edge is None or plan.names[edge[0]] == ACCUMULATE:
                break
            node, output = edge
        return node, output

    def _inputs(self) -> list[int]:
        """Return for each module call the bytes of its inputs that a checkpoint would have to keep."""
        plan, calls = self._graph.plan, self._calls
        entering: list[set[Made]] = [set() for _ in calls]
        for node, call in enumerate(self._within):
            for edge in plan.edges(node) if call >= 0 else ():
                if edge is None or plan.names[edge[0]] == ACCUMULATE:
                    continue
                common = self._common(call, self._within[edge[0]])
                at = call
                while at != common:
                    entering[at].add(self._source(edge))
                    at = calls[at].parent
        return [self._bytes(call, tensors) for call, tensors in enumerate(entering)]

    def _bytes(self, call: int, tensors: set[Made]) -> int:
        """Return the bytes of the inputs `tensors` of a call that nothing outside of the call keeps."""
        total, counted = 0, set()
        for tensor in tensors:
            known = self._kept.get(tensor)
            if known is None:
                total += bytes_of(self._graph.nodes[tensor[0]], tensor[1])
                continue
            held, number, nbytes, common = known
            if not held and number not in counted and self._common(common, call) == call:
                counted.add(number)
                total += nbytes
        return total


def bytes_of(node: Any, output: int) -> int:
    """Return the bytes of an output of a node's forward; 0 if its size is unknown."""
    metas = node._input_metadata
    if output >= len(metas):
        return 0
    count = 1
    try:
        for size in metas[output].shape:
            count *= int(size)
        return count * int(metas[output].dtype.itemsize)
    except (RuntimeError, TypeError, ValueError):  # symbolic or nested sizes
        return 0
