"""The module calls of a graph as a tree, with its items in forward order and digests that are equal for equal parts.

Note [Items of a level]: An item of a level is a node made directly in that call, or a call inside it. Every node has a
position in one walk of the tree, so that an item is a range of positions, and two equal items match position by
position.

Note [Edges of a level]: An edge belongs to the level where its two ends are in different items. A level's digest is
made of its items' digests and its own edges, so every edge is visited once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .graph import Graph


class Link(NamedTuple):
    """An edge of the graph at the level where its two ends are in different items.

    :ivar user: the item that uses the value in the forward; ``user_at``: the position of the node in it.
    :ivar maker: the item that makes the value; ``maker_at``: the position of the node in it.
    :ivar node, made_by: the nodes that use and make it; ``number``: which output of the making node it is.
    """

    user: int
    user_at: int
    maker: int
    maker_at: int
    node: int
    made_by: int
    number: int


@dataclass
class Item:
    """A node or a call in a level. ``start`` is its first position, ``size`` its number of nodes."""

    node: int = -1
    call: int = -1
    start: int = 0
    size: int = 1
    digest: bytes = b""


@dataclass
class Level:
    """The items directly in a call, in forward order, and the edges among them."""

    items: list[Item] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    #: Forward inputs that come from outside of the level: (item, position inside it).
    outside: list[tuple[int, int]] = field(default_factory=list)


class Tree:
    """The levels of a graph by call; -1 is the level outside of all calls."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.levels: dict[int, Level] = {-1: Level()}
        self.levels.update({call.index: Level() for call in graph.calls})
        #: Call of each node; that of a parameter is the innermost one around all nodes that use it.
        self.call: list[int] = []
        #: Position of each node, and the node at each position.
        self.position: list[int] = []
        self.at: list[int] = []
        #: Number of each item in its level: of nodes, and of calls.
        self._of_node: dict[int, int] = {}
        self._of_call: dict[int, int] = {}
        self._assign()
        self._place()
        self._connect()
        self._digest()

    def _parent(self, call: int) -> int:
        """Return the call around a call; -1 for none."""
        return self.graph.calls[call].parent if call >= 0 else -1

    def _depth(self, call: int) -> int:
        """Return how many calls are around a call; -1 for the outermost level."""
        return self.graph.calls[call].depth if call >= 0 else -1

    def _around(self, a: int, b: int) -> int:
        """Return the innermost module call that contains both calls; -1 if only the outermost level does."""
        while a != b:
            if self._depth(a) >= self._depth(b):
                a = self._parent(a)
            else:
                b = self._parent(b)
        return a

    def _assign(self) -> None:
        """Assign each node to a call: its own, and for a parameter the innermost call around all nodes that use it.

        Leaves that are no part of a model belong to the outermost level.
        """
        graph, c = self.graph, self.graph.columns
        self.call = [graph.call_of(i) for i in range(len(graph))]
        leaves = graph.facts.leaves
        home: dict[int, int] = {}
        #: A leaf is placed before the first node that uses it.
        self._first: dict[int, int] = {}
        for i in range(len(graph)):
            for to in c.targets[c.starts[i] : c.starts[i + 1]]:
                if to in leaves:
                    home[to] = self._around(home[to], self.call[i]) if to in home else self.call[i]
                    self._first[to] = min(self._first.get(to, c.seqs[i]), c.seqs[i])
        for leaf, call in home.items():  # leaves that no model owns came in from outside
            self.call[leaf] = call if leaves[leaf].parameter or leaves[leaf].name else -1

    def _place(self) -> None:
        """Order the items of each level by their first node, and assign each node its position in the walk
        of the tree.
        """
        graph, seqs = self.graph, self.graph.columns.seqs
        depth_first = {i: k for k, i in enumerate(reversed(graph.order))}

        def key(i: int) -> tuple[int, int, int]:
            """Sort key of a node: its sequence number, or for a leaf that of its first user; then the walk of the
            graph.
            """
            first = self._first.get(i)
            return (first, 0, i) if first is not None else (seqs[i], 1, depth_first[i])

        met = bytearray(len(graph.calls))
        for i in sorted(range(len(graph)), key=key):
            call = self.call[i]
            chain = []
            while call >= 0 and not met[call]:
                met[call] = 1
                chain.append(call)
                call = self._parent(call)
            for call in reversed(chain):
                level = self.levels[self._parent(call)]
                self._of_call[call] = len(level.items)
                level.items.append(Item(call=call))
            level = self.levels[self.call[i]]
            self._of_node[i] = len(level.items)
            level.items.append(Item(node=i))
        self.position = [0] * len(graph)
        stack: list[tuple[int, int]] = [(-1, 0)]
        while stack:
            call, k = stack.pop()
            items = self.levels[call].items
            if k == len(items):
                if call >= 0:
                    mine = self.levels[self._parent(call)].items[self._of_call[call]]
                    mine.size = len(self.at) - mine.start
                continue
            stack.append((call, k + 1))
            item = items[k]
            item.start = len(self.at)
            if item.call >= 0:
                stack.append((item.call, 0))
            else:
                self.position[item.node] = len(self.at)
                self.at.append(item.node)

    def _item(self, i: int, level: int) -> int:
        """Return the number of the item of `level` that contains node `i`."""
        call, inner = self.call[i], -1
        while call != level:
            inner, call = call, self._parent(call)
        return self._of_call[inner] if inner >= 0 else self._of_node[i]

    def _connect(self) -> None:
        """Add each edge to the level where its two ends are in different items: Note [Edges of a level]."""
        c = self.graph.columns
        for i in range(len(self.graph)):
            for at in range(c.starts[i], c.starts[i + 1]):
                to = c.targets[at]
                if to < 0:
                    continue
                around = self._around(self.call[i], self.call[to])
                level = self.levels[around]
                a, b = self._item(i, around), self._item(to, around)
                mine, its = self.position[i] - level.items[a].start, self.position[to] - level.items[b].start
                level.links.append(Link(a, mine, b, its, i, to, c.numbers[at]))
                call = self.call[i]
                while call != around:  # an input from outside of each call between
                    item = self._item(i, call)
                    self.levels[call].outside.append((item, self.position[i] - self.levels[call].items[item].start))
                    call = self._parent(call)

    def _digest(self) -> None:
        """Compute the digests of all items, innermost first: equal structure gives equal digests."""
        graph = self.graph
        kinds = [repr((k.name, k.inputs)).encode() for k in graph.columns.kinds]
        for call in sorted(self.levels, reverse=True):  # what is inside a call comes after it
            level = self.levels[call]
            made = hashlib.blake2b(digest_size=16)
            for item in level.items:
                if item.node >= 0:
                    leaf = graph.facts.leaves.get(item.node)
                    text = kinds[graph.columns.kind[item.node]] + (b"p" if leaf and leaf.parameter else b"")
                    item.digest = hashlib.blake2b(text, digest_size=16).digest()
                made.update(item.digest)
            for link in sorted(level.links):
                made.update(repr((*link[:4], link.number)).encode())
            made.update(repr(sorted(level.outside)).encode())
            if call >= 0:
                mine = self.levels[self._parent(call)].items[self._of_call[call]]
                made.update(graph.calls[call].class_name.encode())
                mine.digest = made.digest()

    def nodes(self, items: Iterable[Item]) -> list[int]:
        """Return all nodes in `items`."""
        return [node for item in items for node in self.at[item.start : item.start + item.size]]
