"""Order, depth and reach on flat edge lists. Every walk is iterative and linear in nodes and edges.

A graph is ``starts`` and ``targets``: the edges of node i go to ``targets[starts[i]:starts[i + 1]]``, -1 for none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

Ints = Sequence[int]


def reverse(starts: Ints, targets: Ints) -> tuple[array[int], array[int]]:
    """The same edges the other way round, in the same form; those that go nowhere are left out."""
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
    """Every node after all nodes that lead to it (roots first). Shorter than the graph if there is a cycle."""
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
    """Edges that lead from one band of depth into a deeper one, when bands are `width` deep. Depth is the longest way
    from a node that nothing leads to."""
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
    """The nodes that nothing leads to."""
    led = bytearray(len(starts) - 1)
    for to in targets:
        if to >= 0:
            led[to] = 1
    return [i for i, is_led in enumerate(led) if not is_led]


def reach(starts: Ints, targets: Ints, begin: Iterable[int], within: bytearray | None = None) -> bytearray:
    """1 for each node that can be come to from `begin`, itself included, staying in `within`."""
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
    """The heaviest chain that begins at each node: the sum of its nodes' weights (1 each where none are given)."""
    best: list[float] = [0] * (len(starts) - 1)
    for i in reversed(order):
        top: float = 0
        for to in targets[starts[i] : starts[i + 1]]:
            if to >= 0 and best[to] > top:
                top = best[to]
        best[i] = top + (1 if weights is None else weights[i])
    return best


def levels(starts: Ints, targets: Ints, order: Ints) -> list[int]:
    """The number of edges of the longest way from a root to each node."""
    level = [0] * (len(starts) - 1)
    for i in order:
        below = level[i] + 1
        for to in targets[starts[i] : starts[i + 1]]:
            if to >= 0 and level[to] < below:
                level[to] = below
    return level
