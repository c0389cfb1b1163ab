"""Finds the operations that carry a state from one use of a weight to the next: a smallest cut of all paths.

Growth from use to use happens around a loop. If paths fork and join, as in ``x + dt * f(x)``, the factor of one
operation on one path is inconclusive: another path may compensate for it.
"""

from __future__ import annotations

from collections import deque

from ...records import BackwardCall, NodeRun
from ..relations.end_of_run import feeders

#: The most nodes between two uses that are searched, and the most parts of a state.
MAX_NODES, MAX_PARTS = 5000, 8


def carriers(call: BackwardCall, first: int, second: int) -> tuple[list[NodeRun], set[int]]:
    """Return the nodes that produce the state carried from one use of a weight to the next, the latest first.

    `first` and `second` are the sequence numbers of the two uses. If there is a single such node, the second result has
    the indices of all nodes that every path between the uses passes through. Both are empty if unknown.
    """
    into = feeders(call)
    alive = [_alive_at(call, into, seq) for seq in (first, second)]
    sinks, sources = alive[0] - alive[1], alive[1] - alive[0]
    below = _below(call, sources, sinks, first)
    if not sources or not sinks or len(below) > MAX_NODES:
        return [], set()
    cut = _smallest_cut(below, sources, sinks)
    ordered = sorted((call.nodes[i] for i in cut), key=lambda run: -run.node.seq)
    return ordered, _on_all_paths(below, sources, sinks) if len(cut) == 1 else set()


def _alive_at(call: BackwardCall, into: dict[int, list[tuple[int, int]]], seq: int) -> set[int]:
    """Return the indices of nodes created before sequence number `seq` whose result is used by a node from `seq` on.

    :param into: for each node, the nodes that pass gradients to it, from ``feeders``.
    """
    return {
        run.node.index
        for run in call.nodes
        if run.node.seq < seq
        and run.parameter is None
        and run.node.edges
        and any(call.nodes[above].node.seq >= seq for above, _ in into.get(run.node.index, ()))
    }


def _below(call: BackwardCall, sources: set[int], sinks: set[int], first: int) -> dict[int, list[int]]:
    """Return the part of the graph from `sources` down to `sinks`, as index -> indices that it passes gradients to.

    Nodes created before `first` are left out unless they are sinks. Stops when there are more than ``MAX_NODES``.
    """
    below: dict[int, list[int]] = {}
    stack = sorted(sources)
    while stack and len(below) <= MAX_NODES:
        index = stack.pop()
        if index in below:
            continue
        run = call.nodes[index]
        edges = [] if index in sinks else [edge[0] for edge in run.node.edges if edge is not None]
        below[index] = [
            i for i in edges if i in sinks or (call.nodes[i].node.seq >= first and call.nodes[i].node.edges)
        ]
        stack += below[index]
    return below


def _on_all_paths(below: dict[int, list[int]], sources: set[int], sinks: set[int]) -> set[int]:
    """Return the indices of nodes without which no path leads from `sources` to `sinks`."""
    return {index for index in below if not _path(below, sources - {index}, sinks, index)}


def _path(below: dict[int, list[int]], sources: set[int], sinks: set[int], without: int) -> bool:
    """Return whether a path leads from `sources` to `sinks` that avoids the node `without`."""
    stack, seen = sorted(sources), {without}
    while stack:
        index = stack.pop()
        if index in seen:
            continue
        if index in sinks:
            return True
        seen.add(index)
        stack += below.get(index, ())
    return False


def _smallest_cut(below: dict[int, list[int]], sources: set[int], sinks: set[int]) -> list[int]:
    """Return the smallest set of nodes that cuts `sources` from `sinks`, the one nearest to `sources`.

    Empty if more than ``MAX_PARTS`` nodes are needed. Found by maximum flow: each node becomes two, joined by an edge
    of capacity one.
    """
    room: dict[tuple[int, int], dict[tuple[int, int], int]] = {}

    def lead(one: tuple[int, int], other: tuple[int, int], paths: int) -> None:
        """Add an edge with the capacity `paths` to the flow network, and its reverse edge with capacity zero."""
        room.setdefault(one, {})[other] = paths
        room.setdefault(other, {}).setdefault(one, 0)

    start, end = (-1, 0), (-1, 1)
    for index, edges in below.items():
        lead((index, 0), (index, 1), 1)
        for i in edges:
            lead((index, 1), (i, 0), MAX_PARTS + 1)
    for index in sources:
        lead(start, (index, 0), MAX_PARTS + 1)
    for index in sinks & below.keys():
        lead((index, 1), end, MAX_PARTS + 1)
    for _ in range(MAX_PARTS + 1):
        came, queue = {start: start}, deque([start])
        while queue and end not in came:
            at = queue.popleft()
            for one, paths in room[at].items():
                if paths and one not in came:
                    came[one] = at
                    queue.append(one)
        if end not in came:
            return [index for index in below if (index, 0) in came and (index, 1) not in came]
        at = end
        while at != start:
            room[came[at]][at] -= 1
            room[at][came[at]] += 1
            at = came[at]
    return []
