"""Which nodes ran before a backward call raised, of a call that nobody watched: from what is left of its graph."""

from __future__ import annotations

from collections.abc import Set
from types import CodeType

from ...graphs.plan import engine_order
from ...torch_internals.saved_by_nodes import is_freed, read_saved, saved_attributes
from ...torch_internals.walk import LiveGraph
from ...torch_texts import FREED, IN_PLACE


def executed_nodes(graph: LiveGraph, needed: Set[int] | None, error: BaseException, earlier: int) -> list[int]:
    """The nodes before the one at which `error` was raised, in the engine's order.

    A node that has run has let go of what it had saved, one that raised in its own backward has not, and an error that
    torch raises of what a node gave out names it.

    :param earlier: the counter of nodes when the call before this one was over: nodes with a lower number that are
        freed may have been freed by that one.
    """
    order = engine_order(graph.plan, graph.seqs, needed)
    nodes, text = graph.nodes, str(error)
    if FREED in text:
        for at, i in enumerate(order):
            if graph.seqs[i] < earlier and is_freed(nodes[i]):
                return order[:at]
    if IN_PLACE in text:
        for at, i in enumerate(order):
            if any(
                changed for _, _, _, changed, _ in read_saved(nodes[i], saved_attributes(type(nodes[i]), nodes[i]))[0]
            ):
                return order[:at]
    codes = _codes(error)
    for at, i in enumerate(order):
        backward = getattr(getattr(nodes[i], "_forward_cls", None), "backward", None)
        if getattr(backward, "__code__", None) in codes and not is_freed(nodes[i]):
            return order[:at]
    freed = [at for at, i in enumerate(order) if is_freed(nodes[i])]
    last = freed[-1] if freed else -1
    for at in range(last, -1, -1):
        if graph.plan.names[order[at]] in text:
            return order[:at]
    return order[: last + 1]


def _codes(error: BaseException) -> set[CodeType]:
    """The code objects that an error came through."""
    found: set[CodeType] = set()
    traceback = error.__traceback__
    while traceback is not None:
        found.add(traceback.tb_frame.f_code)
        traceback = traceback.tb_next
    return found
