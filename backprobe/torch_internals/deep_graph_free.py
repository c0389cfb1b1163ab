"""Keep the freeing of a deep graph from overflowing the stack after Python has looked at its nodes.

Note [Freeing deep graphs]: From the first look on, torch (2.13) keeps a node's Python wrapper as long as the node, and
    frees such nodes recursively: about 45,000 of them overflow an 8 MB stack. Nothing but other holders of the
    nodes prevents it. So the graph is parted into bands of depth, and a node with an edge into a deeper band holds the
    node there in its metadata, which torch drops after the edges: the recursion ends at the border of a band, and what
    was held goes when the recursion is over, one after the other. Nothing lives longer than it would have: a node holds
    only what its own edges hold too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from ..graphs.order import borders as borders_of

#: Graphs of fewer nodes are left alone.
DEEP = 10_000
#: Depth of a band. A recursion may go through two of them.
BAND = 5_000
_KEY = "backprobe: frees the graph below"


class _Pending(threading.local):
    """Nodes to let go of when this thread frees nothing any more. One for all graphs: where several that were looked at
    hang together, the freeing of one goes on in the next, on the same stack."""

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


_PENDING = _Pending()


class _Below:
    """Holds nodes of the next band until it goes itself."""

    __slots__ = ("_pending", "nodes")

    def __init__(self, nodes: list[Any]) -> None:
        self._pending, self.nodes = _PENDING, nodes  # it may outlive this module when Python ends

    def __del__(self) -> None:
        self._pending.take(self.nodes)


def protect(nodes: Sequence[Any], borders: Iterable[tuple[int, int]]) -> None:
    """See that a graph is freed without deep recursion, from wherever it begins.

    :param borders: edges (node, node that gets its gradient) that lead into a deeper band; see ``Plan.borders``.
    """
    for i, to in borders:
        held = nodes[i].metadata.get(_KEY)
        if held is None:
            nodes[i].metadata[_KEY] = _Below([nodes[to]])
        elif nodes[to] not in held.nodes:
            held.nodes.append(nodes[to])


def protect_walked(nodes: Sequence[Any]) -> None:
    """The same for a part of a graph that was looked at and whose edges were not noted; small ones are left alone."""
    if len(nodes) <= DEEP:
        return
    index = {node: i for i, node in enumerate(nodes)}
    starts, targets = [0], []
    for node in nodes:
        targets += [index.get(child, -1) for child, _ in node.next_functions]
        starts.append(len(targets))
    protect(nodes, borders_of(starts, targets, BAND))
