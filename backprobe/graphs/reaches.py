"""Derives which parameters a node of an autograd graph leads to."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Node


def parameters_behind(nodes: Sequence[Node], begin: int) -> tuple[str, ...]:
    """Return the names of the parameters that get a gradient through node `begin`, in the order in which they are met.

    :param nodes: all nodes of the graph, by number.
    """
    reached, seen = [begin], {begin}
    for at in reached:  # grows as we go
        for edge in nodes[at].edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                reached.append(edge[0])
    return tuple(dict.fromkeys(name for at in reached if (name := nodes[at].parameter) is not None))
