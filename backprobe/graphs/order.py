"""Order, depth and reachability on flat edge lists. Every walk is iterative and linear in nodes and edges.

A graph is ``starts`` and ``targets``: the edges of node i go to ``targets[starts[i]:starts[i + 1]]``, -1 for none.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence, Set

Ints = Sequence[int]


def reverse(starts: Ints, targets: Ints) -> tuple[array[int], array[int]]:
    """Return the reversed edges in the same form (starts and targets), without edges that go nowhere."""
    n = len(starts) - 1
    counts = array("q", bytes(8 * (n + 1)))
    for to in targets:
        if to >= 0:
            counts[to + 1] += 1
    for i in range(n):
        counts[i + 1] += counts[i]
    back = array("q", bytes(8 * counts[n]))
    at = array("q", counts)
    for i in range(n):
        for to in targets[starts[i] : starts[i + 1]]:
            if to >= 0:
                back[at[to]] = i
                at[to] += 1
    return counts, back


def topological(starts: Ints, targets: Ints) -> list[int]:
    """Return the nodes in topological order, roots first. Shorter than the graph if there is a cycle."""
    n = len(starts) - 1
    waiting = [0] * n
    for to in targets:
        if to >= 0:
            waiting[to] += 1
    order = [i for i in range(n) if not waiting[i]]
    for i in order:  # grows as we go
        for to in targets[starts[i] : starts[i + 1]]:
            if to >= 0:
                waiting[to] -= 1
                if not waiting[to]:
                    order.append(to)
    return order


def borders(starts: Ints, targets: Ints, width: int) -> list[tuple[int, int]]:
    """Return the edges from one band of depth into a deeper one, for bands of `width` levels.

    Depth is the longest path from a node without incoming edges.
    """
    depth = [0] * (len(starts) - 1)
    found = []
    for i in topological(starts, targets):
        next_one = depth[i] + 1
        for to in targets[starts[i] : starts[i + 1]]:
            if to >= 0 and depth[to] < next_one:
                depth[to] = next_one
    for i, here in enumerate(depth):
        band = here // width
        for to in targets[starts[i] : starts[i + 1]]:
            if to >= 0 and depth[to] // width > band:
                found.append((i, to))
    return found


def sources(starts: Ints, targets: Ints) -> list[int]:
    """Return the nodes without incoming edges."""
    led = bytearray(len(starts) - 1)
    for to in targets:
        if to >= 0:
            led[to] = 1
    return [i for i, is_led in enumerate(led) if not is_led]


def reach(starts: Ints, targets: Ints, begin: Iterable[int], within: bytearray | None = None) -> bytearray:
    """Return a mask of the nodes that can be reached from `begin`, including `begin`, staying in `within`."""
    seen = bytearray(len(starts) - 1)
    stack = []
    for i in begin:
        if not seen[i] and (within is None or within[i]):
            seen[i] = 1
            stack.append(i)
    while stack:
        i = stack.pop()
        for to in targets[starts[i] : starts[i + 1]]:
            if to >= 0 and not seen[to] and (within is None or within[to]):
                seen[to] = 1
                stack.append(to)
    return seen


def longest(starts: Ints, targets: Ints, order: Ints, weights: Sequence[float] | None = None) -> list[float]:
    """Return the weight of the heaviest chain that begins at each node: the sum of its nodes' weights, by default 1
    each.

    :param order: the nodes in topological order.
    """
    best: list[float] = [0] * (len(starts) - 1)
    for i in reversed(order):
        top: float = 0
        for to in targets[starts[i] : starts[i + 1]]:
            if to >= 0 and best[to] > top:
                top = best[to]
        best[i] = top + (1 if weights is None else weights[i])
    return best


def levels(starts: Ints, targets: Ints, order: Ints) -> list[int]:
    """Return the number of edges of the longest path from a root to each node.

    :param order: the nodes in topological order.
    """
    level = [0] * (len(starts) - 1)
    for i in order:
        below = level[i] + 1
        for to in targets[starts[i] : starts[i + 1]]:
            if to >= 0 and level[to] < below:
                level[to] = below
    return level


class ReadyQueue:
    """Nodes that can run, as a heap with the highest key first.

    Note [Order among equals]: All accumulators have the same sequence number, the highest there is. Among equals the
    engine's order is what ``std::priority_queue`` makes of it, so the heap here moves its entries as libstdc++ does. If
    all keys differ, as with ``by_walk``, that does not matter.
    """

    def __init__(self, keys: Ints) -> None:
        self._keys = keys
        #: The heap.
        self.nodes: list[int] = []

    def push(self, node: int) -> None:
        """Add a node that can run."""
        heap = self.nodes
        heap.append(node)
        if len(heap) > 1:
            self._up(len(heap) - 1, node)

    def pop(self) -> int:
        """Remove and return the node with the highest key."""
        heap, keys = self.nodes, self._keys
        first, last = heap[0], heap.pop()
        count = len(heap)
        if count:
            hole = child = 0
            while child < (count - 1) // 2:
                child = 2 * (child + 1)
                if keys[heap[child]] < keys[heap[child - 1]]:
                    child -= 1
                heap[hole] = heap[child]
                hole = child
            if count % 2 == 0 and child == (count - 2) // 2:
                child = 2 * child + 1
                heap[hole] = heap[child]
                hole = child
            self._up(hole, last)
        return first

    def remove(self, node: int) -> None:
        """Remove a node, which need not be the first: then the heap is built anew from the others."""
        if self.nodes[0] == node:
            self.pop()
            return
        rest, self.nodes = self.nodes, []
        for other in rest:
            if other != node:
                self.push(other)

    def _up(self, hole: int, node: int) -> None:
        """Move a node up from position `hole` of the heap to where its parent has no lower key."""
        heap, keys = self.nodes, self._keys
        key = keys[node]
        while hole > 0:
            parent = (hole - 1) // 2
            if not keys[heap[parent]] < key:
                break
            heap[hole] = heap[parent]
            hole = parent
        heap[hole] = node


class Schedule:
    """Simulates the order in which the engine runs nodes on one thread in one backward.

    Of the nodes whose producers have all run, the one with the highest key is next. Ask for ``next``, and call ``ran``
    with the node that has run.

    Note [Counting producers]: Producers are counted over all nodes that the roots can reach, including nodes that are
    not needed, as in the engine.

    :param keys: sequence numbers, for the engine's own order; ``by_walk`` of them to order equals as in the walk.
    :param roots: nodes that the backward begins with, once for each gradient that it begins with there.
    :param inside: the nodes that run; ``None``: all.
    """

    def __init__(
        self, starts: Ints, targets: Ints, keys: Ints, roots: Iterable[int], inside: Set[int] | None = None
    ) -> None:
        self._starts, self._targets, self._keys, self._inside = starts, targets, keys, inside
        self._waiting = waiting = [0] * (len(starts) - 1)
        for to in targets:
            if to >= 0:
                waiting[to] += 1
        roots = list(roots)
        for root in roots:
            waiting[root] += 1
        self._queue = ReadyQueue(keys)
        self._reached(roots)

    @property
    def next(self) -> int | None:
        """The node to run next; ``None`` if all have run."""
        ready = self._queue.nodes
        return ready[0] if ready else None

    def best(self, among: Callable[[int], bool]) -> int | None:
        """Return the ready node with the highest key that satisfies `among`; ``None`` if none does."""
        return max(filter(among, self._queue.nodes), key=self._keys.__getitem__, default=None)

    def ran(self, i: int) -> None:
        """Note that a ready node, the next one or another, has run."""
        self._queue.remove(i)
        self._reached(self._targets[self._starts[i] : self._starts[i + 1]])

    def _reached(self, nodes: Iterable[int]) -> None:
        """Count one producer less for each of `nodes`, and queue those that have none left and that run."""
        waiting, inside, push = self._waiting, self._inside, self._queue.push
        for to in nodes:
            if to >= 0:
                waiting[to] -= 1
                if not waiting[to] and (inside is None or to in inside):
                    push(to)


def by_walk(seqs: Ints) -> list[int]:
    """Return keys that order nodes by sequence number, and equal ones by their position in the walk of the graph."""
    rank = [0] * len(seqs)
    for at, i in enumerate(sorted(range(len(seqs) - 1, -1, -1), key=seqs.__getitem__)):
        rank[i] = at
    return rank
