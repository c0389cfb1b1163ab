"""Keep the freeing of a deep graph from overflowing the stack after Python has looked at its nodes.

N21. From the first look on, torch (2.13) keeps a node's Python wrapper as long as the node, and frees such nodes
     recursively: about 45,000 of them overflow an 8 MB stack (see N7). Nothing but other holders of the nodes prevents
     it. So the wrappers are held by an object in the metadata of the graph's first nodes, which torch drops when such
     a node goes. What hangs below is let go then, one node after the other, roots first. Nothing lives longer than it
     would have: all that is held is reachable from the node that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Chains longer than this are freed with care.
DEEP = 10_000
_KEY = "backprobe: frees the graph below"


class _Below:
    """Holds nodes until it goes itself, then lets go of them in their order."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: list[Any]) -> None:
        self._nodes = nodes

    def __del__(self) -> None:
        nodes = self._nodes
        for i in range(len(nodes)):
            nodes[i] = None


def protect(nodes: Sequence[Any], order: Sequence[int], first: Sequence[int]) -> None:
    """See that what hangs below the nodes `first` is freed without recursion.

    :param order: every node after all nodes that lead to it. A node that leads to nothing held is freed by its holders.
    """
    heads = set(first)
    if all(_KEY in nodes[i].metadata for i in first):
        return
    below = _Below([nodes[i] for i in order if i not in heads])
    for i in first:
        nodes[i].metadata.setdefault(_KEY, below)
