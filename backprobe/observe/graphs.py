"""Walk the autograd graph that a backward call can reach, and keep its wrappers as long as that is needed.

N7. Torch frees a deep graph recursively once Python has touched its nodes, which overflows the stack. We keep the
    wrappers of a large graph and drop them root first after the graph itself (``Keeper``).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..graph.plan import Plan
from ..records import ACCUMULATE_SEQ

#: Graphs larger than this are freed with care (N7): the measured limit is about 45,000 nodes on an 8 MB stack.
DEEP = 10_000


class Plans:
    """The last few plans."""

    def __init__(self, size: int = 16) -> None:
        self._size = size
        self._plans: list[Plan] = []

    def get(self, names: list[str], counts: list[int], targets: list[int], numbers: list[int]) -> Plan:
        for i, plan in enumerate(self._plans):
            if plan.fits((names, counts, targets, numbers)):
                if i:
                    self._plans.insert(0, self._plans.pop(i))
                return plan
        plan = Plan(names, counts, targets, numbers)
        self._plans.insert(0, plan)
        del self._plans[self._size :]
        return plan


@dataclass
class Graph:
    """What a backward call can reach: the nodes, roots first, each once; their sequence numbers; the plan."""

    nodes: list[Any]
    seqs: list[int]
    plan: Plan

    @cached_property
    def leaves(self) -> list[tuple[int, Any]]:
        """Accumulators, with the tensor of each."""
        return [(i, self.nodes[i].variable) for i in self.plan.leaves]

    @cached_property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest sequence number of the nodes that have one of their own."""
        own = [s for s in self.seqs if s != ACCUMULATE_SEQ]
        return (min(own), max(own)) if own else (0, 0)


def walk(roots: Iterable[Any], plans: Plans) -> Graph:
    """The graph that `roots` reach. Iterative."""
    nodes: list[Any] = []
    index: dict[Any, int] = {}
    for root in roots:
        if root is not None and root not in index:
            index[root] = len(nodes)
            nodes.append(root)
    names: list[str] = []
    seqs: list[int] = []
    counts: list[int] = []
    targets: list[int] = []
    numbers: list[int] = []
    get = index.get
    for node in nodes:  # grows as we go
        names.append(node.name())
        seqs.append(node._sequence_nr())
        following = node.next_functions
        counts.append(len(following))
        for child, number in following:
            numbers.append(number)
            if child is None:
                targets.append(-1)
                continue
            i = get(child)
            if i is None:
                i = index[child] = len(nodes)
                nodes.append(child)
            targets.append(i)
    return Graph(nodes, seqs, plans.get(names, counts, targets, numbers))


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
