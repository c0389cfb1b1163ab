"""Walks the autograd graph that a backward call can reach. Large graphs are protected: Note [Freeing deep graphs]."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch

from ..graphs.plan import Plan
from ..records import ACCUMULATE_SEQ
from .deep_graph_free import BAND, MIN_DEEP_NODES, protect


class Plans:
    """Cache of the latest plans."""

    def __init__(self, size: int = 16) -> None:
        """Begin without plans.
        :param size: the most plans to keep.
        """
        self._size = size
        self._plans: list[Plan] = []

    def get(self, names: list[str], counts: list[int], targets: list[int], numbers: list[int]) -> Plan:
        """Return the plan of a graph with these node names, edge counts, targets and output indices; a new one if none
        is kept.
        """
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
class LiveGraph:
    """The graph that a backward call can reach: the nodes, roots first, each once; their sequence numbers; the plan."""

    nodes: list[torch.autograd.graph.Node]
    seqs: list[int]
    plan: Plan

    @cached_property
    def leaves(self) -> list[tuple[int, torch.Tensor]]:
        """Return (number, tensor) of each accumulator."""
        return [(i, self.nodes[i].variable) for i in self.plan.leaves]

    @cached_property
    def custom(self) -> list[int]:
        """Return the numbers of the nodes of custom functions."""
        kind = torch.autograd.function.BackwardCFunction
        return [i for i, node in enumerate(self.nodes) if isinstance(node, kind)]

    @cached_property
    def span(self) -> tuple[int, int]:
        """Return the lowest and the highest sequence number of the nodes that have one of their own."""
        own = [s for s in self.seqs if s != ACCUMULATE_SEQ]
        return (min(own), max(own)) if own else (0, 0)


def walk(roots: Iterable[object], plans: Plans) -> LiveGraph:
    """Return the autograd graph reachable from the nodes `roots`: nodes, sequence numbers and plan; without
    recursion.
    """
    nodes: list[torch.autograd.graph.Node] = []
    index: dict[torch.autograd.graph.Node, int] = {}
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
    plan = plans.get(names, counts, targets, numbers)
    if len(nodes) > MIN_DEEP_NODES:
        protect(nodes, plan.borders(BAND))
    return LiveGraph(nodes, seqs, plan)
