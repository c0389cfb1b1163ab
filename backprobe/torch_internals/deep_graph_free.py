"""Prevents a stack overflow when a deep graph is freed after Python has accessed its nodes.

Note [Freeing deep graphs]: once Python has accessed a node, torch (2.13) keeps its Python wrapper as long as the node,
and frees such nodes recursively: about 45,000 of them overflow an 8 MB stack. The only remedy is another reference to
the nodes. So the graph is divided into bands of depth, and a node with an edge into a deeper band also references the
node there in its metadata, which torch drops after the edges. The recursion ends at the border of a band, and the
referenced nodes are freed one after the other when it is over. Nothing lives longer than before: a node only references
what its own edges reference too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..graphs.order import borders as borders_of

if TYPE_CHECKING:
    import torch

#: Graphs with fewer nodes are left alone.
MIN_DEEP_NODES = 10_000
#: Depth of a band. A recursion may span two of them.
BAND = 5_000
_KEY = "backprobe: frees the graph below"


class _Pending(threading.local):
    """Nodes to release when this thread is not freeing others.

    There is one list for all graphs: if several accessed graphs are connected, freeing one continues in the next, on
    the same stack.
    """

    def __init__(self) -> None:
        """Begin without nodes."""
        self._nodes: list[torch.autograd.graph.Node] = []
        self._busy = False

    def take(self, nodes: list[torch.autograd.graph.Node]) -> None:
        """Release `nodes`, and empty the list; at once, or when the release under way on this thread gets to them."""
        self._nodes += nodes
        nodes.clear()  # the last other reference is gone
        if self._busy:  # a caller up the stack releases them
            return
        self._busy = True
        try:
            while self._nodes:
                self._nodes.pop()  # freeing it appends its own nodes to the list
        finally:
            self._busy = False


_PENDING = _Pending()


class _Below:
    """Owner of nodes of the next band, which it releases when it is deleted itself."""

    __slots__ = ("_pending", "nodes")

    def __init__(self, nodes: list[torch.autograd.graph.Node]) -> None:
        """Take the nodes to own."""
        self._pending, self.nodes = _PENDING, nodes  # it may outlive this module at interpreter exit

    def __del__(self) -> None:
        """Release the nodes."""
        self._pending.take(self.nodes)


def protect(nodes: Sequence[torch.autograd.graph.Node], borders: Iterable[tuple[int, int]]) -> None:
    """Arrange that a graph is freed without deep recursion, no matter which of its nodes is freed first.

    :param borders: edges (node, node that gets its gradient) that lead into a deeper band; see ``Plan.borders``.
    """
    for i, to in borders:
        held = nodes[i].metadata.get(_KEY)
        if held is None:
            nodes[i].metadata[_KEY] = _Below([nodes[to]])
        elif nodes[to] not in held.nodes:
            held.nodes.append(nodes[to])


def protect_walked(nodes: Sequence[torch.autograd.graph.Node]) -> None:
    """Do the same as ``protect`` for accessed nodes whose edges were not recorded; small graphs are left alone."""
    if len(nodes) <= MIN_DEEP_NODES:
        return
    index = {node: i for i, node in enumerate(nodes)}
    starts, targets = [0], []
    for node in nodes:
        targets += [index.get(child, -1) for child, _ in node.next_functions]
        starts.append(len(targets))
    protect(nodes, borders_of(starts, targets, BAND))
