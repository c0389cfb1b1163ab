"""Finds the nodes that ran before an unobserved backward call raised, from what is left of its graph."""

from __future__ import annotations

from collections.abc import Set
from types import CodeType

from ...basics.torch_texts import FREED, IN_PLACE
from ...graphs.plan import engine_order
from ...source.definitions import backward_code
from ...torch_internals.saved_by_nodes import is_freed, read_saved, saved_attributes
from ...torch_internals.walk import LiveGraph


def executed_nodes(graph: LiveGraph, needed: Set[int] | None, error: BaseException, previous_end: int) -> list[int]:
    """Return the nodes before the one at which `error` was raised, in the engine's order.

    A node that has run has released its saved tensors, and one that raised in its own backward has not. An error that
    torch raises about a node's outputs names the node.

    :param previous_end: the node counter at the end of the call before this one: freed nodes with a lower number may
        have been freed by that call.
    """
    order = engine_order(graph.plan, graph.seqs, needed)
    nodes, text = graph.nodes, str(error)
    if FREED in text:
        for at, i in enumerate(order):
            if graph.seqs[i] < previous_end and is_freed(nodes[i]):
                return order[:at]
    if IN_PLACE in text:
        for at, i in enumerate(order):
            if any(
                changed for _, _, _, changed, _ in read_saved(nodes[i], saved_attributes(type(nodes[i]), nodes[i]))[0]
            ):
                return order[:at]
    codes = _codes(error)
    for at, i in enumerate(order):
        if backward_code(getattr(nodes[i], "_forward_cls", None)) in codes and not is_freed(nodes[i]):
            return order[:at]
    freed = [at for at, i in enumerate(order) if is_freed(nodes[i])]
    last = freed[-1] if freed else -1
    for at in range(last, -1, -1):
        if graph.plan.names[order[at]] in text:
            return order[:at]
    return order[: last + 1]


def _codes(error: BaseException) -> set[CodeType]:
    """Return the code objects of all functions in the traceback of an error."""
    found: set[CodeType] = set()
    traceback = error.__traceback__
    while traceback is not None:
        found.add(traceback.tb_frame.f_code)
        traceback = traceback.tb_next
    return found
