"""One node, as the engine runs it: its hooks, the user's code in it, and nothing that comes after.

Note [Hooks of a tensor]: What a tensor's own hooks do is asked from the engine: a call that begins at the node and asks
for the gradient at the node runs these hooks and nothing else. No Python object lists them.

Note [One node in the engine]: A node with hooks of its own, one that is written in Python, and an accumulator run in
the engine, in a call that begins there. A hook of ours, the last on the node, takes what it gives (for an accumulator
what it gets) and ends that call before anything else runs. All other nodes are called, which is the same and is
quicker.

Note [Nodes without a gradient]: A node for which no gradient came at all cannot be where a call begins. It is called,
with the hooks on it; hooks of the tensors that it made are not run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from ..records import ACCUMULATE_SEQ
from ..torchside import private
from .backward_graph import NodeInfo
from .rerun import call_node


class _Taken(BaseException):
    """Ends a call when its one node has run."""


def is_python(node: Any) -> bool:
    """Whether it is the node of a ``Function`` written in Python."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def hooks_of(node: Any, register: Callable[[Any], Any]) -> dict[int, Any]:
    """The dict of hooks of one kind on `node`.

    :param register: ``node.register_hook`` or ``node.register_prehook``.
    """
    handle = register(_nothing)
    found: dict[int, Any] = handle.hooks_dict_ref()
    handle.remove()
    return found


def has_hooks(node: Any) -> bool:
    return bool(hooks_of(node, node.register_prehook) or hooks_of(node, node.register_hook))


def _nothing(*grads: Any) -> None:
    return None


def run_node(
    node: Any, info: NodeInfo, grads: Sequence[Any], create_graph: bool, wanted: Sequence[int] | None
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Run `node` with the gradients that came for it.

    :param wanted: numbers of the edges that the call needs; ``None``: all.
    :returns: its incoming gradients as the hooks before it leave them, and the outgoing ones.
    """
    with torch.set_grad_enabled(create_graph):
        if all(g is None for g in grads):
            return _empty(node, info, tuple(grads))  # see Note [Nodes without a gradient]
        if info.seq is None or is_python(node) or has_hooks(node):
            return _in_engine(node, grads, create_graph, wanted)
        grads = after_tensor_hooks(node, grads, create_graph)
        out = call_node(node, info, grads)
    if wanted is not None:
        out = tuple(g if k in wanted else None for k, g in enumerate(out))
    return tuple(grads), out


def after_tensor_hooks(node: Any, grads: Sequence[Any], create_graph: bool) -> tuple[Any, ...]:
    """`grads` as the hooks of the tensors that `node` made leave them; see Note [Hooks of a tensor]."""
    roots = [(GradientEdge(node, k), g) for k, g in enumerate(grads) if g is not None]
    if not roots:
        return tuple(grads)
    asked = tuple(GradientEdge(node, k) for k in range(len(grads)))
    edges, given = zip(*roots, strict=True)
    found: tuple[Any, ...] = private.run_engine(edges, given, True, create_graph, asked, True, False)
    return found


def _in_engine(
    node: Any, grads: Sequence[Any], create_graph: bool, wanted: Sequence[int] | None
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """See Note [One node in the engine]."""
    taken: list[tuple[Any, ...]] = []
    task: list[int] = []

    def first(incoming: Any) -> None:
        # A hook of the user's may run a backward over the same node: that has a number of its own, and comes later.
        if not task:
            task.append(private.graph_task())

    def before(incoming: Any) -> None:
        if private.graph_task() == task[0]:
            taken[:] = [tuple(incoming), ()]
            raise _Taken

    def after(outgoing: Any, incoming: Any) -> None:
        if private.graph_task() == task[0]:
            taken[:] = [tuple(incoming), tuple(outgoing)]
            raise _Taken

    edges = [GradientEdge(node, k) for k, g in enumerate(grads) if g is not None]
    asked = () if wanted is None else tuple(GradientEdge(*node.next_functions[k]) for k in wanted)
    handles = [node.register_prehook(first)]
    hooks = handles[0].hooks_dict_ref()
    others = [(number, hook) for number, hook in hooks.items() if number != handles[0].id]
    for number, hook in others:  # torch calls them in the order in which they were put in
        del hooks[number]
        hooks[number] = hook
    accumulates = node._sequence_nr() == ACCUMULATE_SEQ
    handles.append(node.register_prehook(before) if accumulates else node.register_hook(after))
    anomaly = torch.is_anomaly_enabled()
    checked = torch.is_anomaly_check_nan_enabled()
    try:
        if anomaly:  # it would print where the node that we end was made
            torch.autograd.set_detect_anomaly(False)
        private.run_engine(
            tuple(edges), tuple(g for g in grads if g is not None), True, create_graph, asked, True, not asked
        )
    except _Taken:
        pass
    finally:
        for handle in handles:
            handle.remove()
        if anomaly:
            torch.autograd.set_detect_anomaly(True, checked)
    return taken[0], taken[1]


def _empty(node: Any, info: NodeInfo, grads: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """See Note [Nodes without a gradient]."""
    for hook in list(hooks_of(node, node.register_prehook).values()):
        grads = _replaced(hook(grads), grads)
    if info.seq is None:
        return grads, ()
    out = call_node(node, info, grads)
    for hook in list(hooks_of(node, node.register_hook).values()):
        out = _replaced(hook(out, grads), out)
    return grads, out


def _replaced(new: Any, old: tuple[Any, ...]) -> tuple[Any, ...]:
    if new is None:
        return old
    return new if isinstance(new, tuple) else (new,)
