"""Paths, dominators and cuts on flat edge lists (see ``order``). Iterative; near linear in nodes and edges."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from .order import Ints, reach, reverse, topological


def following(starts: Ints, targets: Ints, i: int) -> list[int]:
    """Return the nodes that `i` leads to, each once."""
    return [to for to in dict.fromkeys(targets[starts[i] : starts[i + 1]]) if to >= 0]


def _edges(starts: Ints, targets: Ints, i: int) -> list[int]:
    """Return the targets of the edges of `i`: a node twice if two edges lead there (``x * x``)."""
    return [to for to in targets[starts[i] : starts[i + 1]] if to >= 0]


def between(starts: Ints, targets: Ints, a: Iterable[int], b: Iterable[int]) -> bytearray:
    """Return a mask of the nodes on any path from a node of `a` to a node of `b`."""
    down = reach(starts, targets, a)
    return reach(*reverse(starts, targets), b, down)


def shortest(starts: Ints, targets: Ints, a: Iterable[int], b: Iterable[int]) -> list[int]:
    """Return a path from a node of `a` to one of `b` with the fewest edges; empty if there is none."""
    goals = set(b)
    came = dict.fromkeys(a, -1)
    queue = deque(came)
    while queue:
        i = queue.popleft()
        if i in goals:
            way = [i]
            while came[way[-1]] >= 0:
                way.append(came[way[-1]])
            return way[::-1]
        for to in targets[starts[i] : starts[i + 1]]:
            if to >= 0 and to not in came:
                came[to] = i
                queue.append(to)
    return []


def paths(starts: Ints, targets: Ints, a: Iterable[int], b: Iterable[int]) -> Iterator[list[int]]:
    """Yield every path from `a` to `b`, as lists of nodes, that touches `a` and `b` only at its ends.

    Two edges between the same nodes count as two paths. The work for each path is linear in its length.
    """
    ends, goals = set(a), set(b)
    both = ends & goals
    for i in sorted(both):
        yield [i]
    ends, goals = ends - both, goals - both
    # A path may not touch `a` again, so the nodes that lead on are found from the goals without passing `a` or `b`.
    leads = bytearray(len(starts) - 1)
    back_starts, back = reverse(starts, targets)
    stack = list(goals)
    for i in stack:
        leads[i] = 1
    while stack:
        i = stack.pop()
        for up in back[back_starts[i] : back_starts[i + 1]]:
            if not leads[up] and up not in goals and up not in both:
                leads[up] = 1
                if up not in ends:
                    stack.append(up)
    for begin in sorted(ends):
        if not leads[begin]:
            continue
        way = [begin]
        open_ = [iter(_edges(starts, targets, begin))]
        while open_:
            to = next(open_[-1], -1)
            if to < 0:
                open_.pop()
                way.pop()
            elif to in goals:
                yield [*way, to]
            elif leads[to] and to not in ends:
                way.append(to)
                open_.append(iter(_edges(starts, targets, to)))


def count(starts: Ints, targets: Ints, a: Iterable[int], b: Iterable[int]) -> int:
    """Return the exact number of paths that ``paths`` would yield, without walking them."""
    ends, goals = set(a), set(b)
    both = ends & goals
    ends, goals = ends - both, goals - both
    mask = between(starts, targets, ends, goals)
    ways: dict[int, int] = {}
    for i in reversed(topological(starts, targets)):
        if not mask[i] or i in both:
            continue
        if i in goals:
            ways[i] = 1
            continue
        ways[i] = sum(ways.get(to, 0) for to in _edges(starts, targets, i) if to not in ends)
    return len(both) + sum(ways.get(i, 0) for i in ends)


class Dominators:
    """The dominator tree of an acyclic graph, from a virtual node above `begin`.

    A node's immediate dominator is the nearest common ancestor, in the tree so far, of all nodes that lead to it.
    Ancestors are found over jump pointers (Myers 1983, skew-binary): O(log n) for an edge, O(n) memory.
    """

    def __init__(self, starts: Ints, targets: Ints, begin: Iterable[int], within: bytearray | None = None) -> None:
        n = len(starts) - 1
        reached = reach(starts, targets, begin, within)
        top = n
        #: Immediate dominator; n for the virtual node, -1 for a node that is not reached.
        self.parent = [-1] * (n + 1)
        self._jump, self._depth = [top] * (n + 1), [0] * (n + 1)
        self.parent[top] = top
        for i in begin:
            if reached[i]:
                self.parent[i] = top
        first = set(begin)
        for i in topological(starts, targets):
            if not reached[i]:
                continue
            self._place(i, top if i in first else self.parent[i])
            for to in targets[starts[i] : starts[i + 1]]:
                if to >= 0 and reached[to]:
                    known = self.parent[to]
                    self.parent[to] = i if known < 0 else self._meet(known, i)

    def _place(self, i: int, parent: int) -> None:
        """Set the immediate dominator of a node, its depth in the tree, and its jump pointer."""
        self.parent[i] = parent
        depth, jump = self._depth, self._jump
        depth[i] = depth[parent] + 1
        far = jump[parent]
        jump[i] = jump[far] if depth[parent] - depth[far] == depth[far] - depth[jump[far]] else parent

    def _meet(self, a: int, b: int) -> int:
        """Return the nearest common ancestor of two nodes in the tree."""
        depth, jump, parent = self._depth, self._jump, self.parent
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            a = jump[a] if depth[jump[a]] >= depth[b] else parent[a]
        while a != b:
            if jump[a] != jump[b]:
                a, b = jump[a], jump[b]
            else:
                a, b = parent[a], parent[b]
        return a

    def above(self, ends: Iterable[int]) -> list[int]:
        """Return the nodes that every path to each of `ends` passes through, first to last; may include `ends`."""
        meet = -1
        for i in ends:
            if self.parent[i] >= 0:
                meet = i if meet < 0 else self._meet(meet, i)
        top = len(self.parent) - 1
        chain = []
        while meet not in (-1, top):
            chain.append(meet)
            meet = self.parent[meet]
        return chain[::-1]


def smallest_cut(starts: Ints, targets: Ints, a: Sequence[int], b: Sequence[int]) -> list[int] | None:
    """Return the fewest nodes outside `a` and `b` that every path from `a` to `b` passes through.

    ``None`` if an edge goes from `a` to `b` or they share a node, so that no such nodes exist. By Menger's theorem
    their number is that of disjoint paths. Each path found costs one walk of the nodes in between.
    """
    ends, goals = set(a), set(b)
    mask = between(starts, targets, ends, goals)
    if ends & goals or any(to in goals for i in ends for to in following(starts, targets, i)):
        return None
    back_starts, back = reverse(starts, targets)
    flow: set[tuple[int, int]] = set()
    used: set[int] = set()
    while True:
        # A state is (node, whether we are past it): passing a node that has a flow is only possible backwards.
        came: dict[tuple[int, bool], tuple[int, bool] | None] = {(i, True): None for i in ends if mask[i]}
        queue = deque(came)
        end = None
        while queue and end is None:
            state = queue.popleft()
            i, past = state
            steps: list[tuple[int, bool]] = []
            if past:
                for to in following(starts, targets, i):
                    if mask[to] and to not in ends:
                        steps.append((to, False))
                if i in used:
                    steps.append((i, False))
            else:
                if i not in used:
                    steps.append((i, True))
                steps += [(up, True) for up in back[back_starts[i] : back_starts[i + 1]] if (up, i) in flow]
            for step in steps:
                if step not in came:
                    came[step] = state
                    if step[0] in goals:
                        end = step
                        break
                    queue.append(step)
        if end is None:
            return sorted(i for i, past in came if not past and (i, True) not in came)
        while end is not None and (before := came[end]) is not None:
            (i, past), (to, now) = before, end
            if i != to:
                if past and not now:
                    flow.add((i, to))
                else:
                    flow.discard((to, i))
            elif now:
                used.add(i)
            else:
                used.discard(i)
            end = before
