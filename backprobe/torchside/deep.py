"""Keep the freeing of a deep graph from overflowing the stack after Python has looked at its nodes.

Note [Freeing deep graphs]: From the first look on, torch (2.13) keeps a node's Python wrapper as long as the node, and
    frees such nodes recursively: about 45,000 of them overflow an 8 MB stack. Nothing but other holders of the
    nodes prevents it. So the graph is parted into bands of depth, and a node with an edge into a deeper band holds the
    node there in its metadata, which torch drops after the edges: the recursion ends at the border of a band, and what
    was held goes when the recursion is over, one after the other. Nothing lives longer than it would have: a node holds
    only what its own edges hold too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

#: Graphs of fewer nodes are left alone.
DEEP = 10_000
#: Depth of a band. A recursion may go through two of them.
BAND = 5_000
_KEY = "backprobe: frees the graph below"


class _Pending:
    """Nodes to let go of when nothing is being freed any more. One for each graph."""

    __slots__ = ("_busy", "_nodes")

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._busy = False

    def take(self, nodes: list[Any]) -> None:
        self._nodes += nodes
        nodes.clear()  # nobody else holds them any longer
        if self._busy:  # further up the stack somebody lets go of them
            return
        self._busy = True
        try:
            while self._nodes:
                self._nodes.pop()  # what this frees comes back here with what it held
        finally:
            self._busy = False


class _Below:
    """Holds nodes of the next band until it goes itself."""

    __slots__ = ("_pending", "nodes")

    def __init__(self, pending: _Pending, nodes: list[Any]) -> None:
        self._pending, self.nodes = pending, nodes

    def __del__(self) -> None:
        self._pending.take(self.nodes)


def protect(nodes: Sequence[Any], borders: Iterable[tuple[int, int]]) -> None:
    """See that a graph is freed without deep recursion, from wherever it begins.

    :param borders: edges (node, node that gets its gradient) that lead into a deeper band; see ``Plan.borders``.
    """
    pending = _Pending()
    for i, to in borders:
        held = nodes[i].metadata.get(_KEY)
        if held is None:
            nodes[i].metadata[_KEY] = _Below(pending, [nodes[to]])
        elif nodes[to] not in held.nodes:
            held.nodes.append(nodes[to])
