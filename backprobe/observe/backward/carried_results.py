"""Finds the variable that carries a result, with its graph, from one iteration to the next."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...records import Site
from ...source.assignments import assigned_in, last_assigned, reads_attribute, used_before
from ...source.frames import Frames, variables
from ...torch_internals.structure import tensors_in
from ..forward.naming import Naming
from .active_backward import ActiveBackward

if TYPE_CHECKING:
    from torch.autograd.graph import Node

#: Most tensors of a variable that are searched, and the depth of containers.
MAX_TENSORS, MAX_DEPTH = 100, 2


def lines_that_carry(old: int, running: ActiveBackward, names: Naming) -> tuple[Site | None, Site | None]:
    """Return the line that used the variable which holds the result of node `old`, and the line that assigned it.

    The variable is one of a running function, or an attribute of a module; it may be a container of results. If the
    variable has got the next result since, the statement that uses and assigns it: ``out, state = model(x, state)``.
    """
    frames, graph = names.frames, set(running.graph.nodes)
    result = running.graph.nodes[old]
    for at, name, value in _variables(frames):
        if result in _makers(value):
            return used_before(at, name), last_assigned(at, name)
    _, attribute = names.attribute_with(lambda value: result in _makers(value))
    if attribute:
        return None, assigned_in(frames, attribute)

    def is_next(value: object) -> bool:
        """Return whether a variable holds a result of this graph like that of node `old`: the one of the next
        iteration.
        """
        return any(one.name() == result.name() and _is_of(one, graph) for one in _makers(value))

    lines = [last_assigned(at, name, from_itself=True) for at, name, value in _variables(frames) if is_next(value)]
    _, attribute = names.attribute_with(is_next)
    assigned = assigned_in(frames, attribute) if attribute else None
    if assigned is not None and reads_attribute(assigned, attribute):
        lines.append(assigned)
    found = {line for line in lines if line is not None}
    return None, found.pop() if len(found) == 1 else None


def _variables(frames: Frames) -> Iterator[tuple[Site, str, object]]:
    """Yield each variable of the user's running functions, with the line that runs; the innermost function first."""
    frame = frames.first(sys._getframe(1))
    while frame is not None:
        at = frames.site((frame.f_code, frame.f_lasti)) if frames.is_user(frame.f_code) else None
        if at is not None:
            for name, value in variables(frame).items():
                yield at, name, value
        frame = frame.f_back


def _makers(value: object) -> set[Node]:
    """Return the nodes whose results a variable holds."""
    return {one.grad_fn for one in tensors_in(value, most=MAX_TENSORS, depth=MAX_DEPTH) if one.grad_fn is not None}


def _is_of(node: Node, graph: set[Node]) -> bool:
    """Return whether `node`, or a node that made one of its inputs, is in `graph`.

    The loss of an iteration need not use the state that it passes on.
    """
    return node in graph or any(following in graph for following, _ in node.next_functions)
