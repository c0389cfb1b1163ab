"""One node, as the engine runs it: its hooks, the user's code in it, and nothing that comes after.

Note [Hooks of a tensor]: What a tensor's own hooks do is asked from the engine: a call that begins at the node and asks
for the gradient at the node runs these hooks and nothing else. No Python object lists them.

Note [One node in the engine]: A node with hooks of its own, one that is written in Python, and an accumulator run in
the engine, in a call that begins there. A hook of ours, the last on the node, takes what it gives (for an accumulator
what it gets) and ends that call before anything else runs. All other nodes are called, which is the same and is
quicker.

Note [Hooks beside a node in float64]: The node calculates in float64, hooks run in their own precision, as they
would in the backward. Where they change nothing the gradient stays in float64; else theirs goes on, and it is said.

Note [Nodes without a gradient]: A node for which no gradient came at all cannot be where a call begins. It is called,
with the hooks on it; hooks of the tensors that it made are not run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from ..errors import BackprobeError
from ..records import ACCUMULATE_SEQ
from ..torch_internals import private
from ..torch_texts import FREED
from .backward_graph import NodeInfo
from .calling import call_node, call_node_wide
from .difference import bitwise_equal
from .double import widened
from .nested import Inner, is_python


class _Taken(BaseException):
    """Ends a call when its one node has run."""


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


@dataclass(frozen=True)
class Ran:
    """What one node got and gave.

    :ivar incoming: its incoming gradients as the hooks before it left them.
    :ivar outgoing: what it gave, one for each edge.
    :ivar inner: leaf and gradient for each leaf that a backward inside it has reached; ``.grad`` is as it was.
    :ivar note: what was done otherwise than asked for, and why.
    :ivar wide: whether it calculated in float64.
    """

    incoming: tuple[Any, ...]
    outgoing: tuple[Any, ...]
    inner: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    note: str = ""
    wide: bool = False


@dataclass(frozen=True)
class How:
    """How a node is run.

    :ivar hooks: whether the hooks of the user's run, with it and before it.
    :ivar wide: in float64. Where it cannot be and hooks run, it runs in its own precision, and ``Ran.note`` says why.
    :ivar wanted: numbers of the edges that the call needs; ``None``: all.
    """

    hooks: bool = True
    create_graph: bool = False
    wide: bool = False
    wanted: Sequence[int] | None = None


def run_node(node: Any, info: NodeInfo, grads: Sequence[Any], how: How) -> Ran:
    """Run `node` with the gradients that came for it: the one way to do so. What a backward inside it adds to ``.grad``
    is taken away again.

    :raises BackprobeError: what it had saved is freed; without hooks also where it cannot be run in float64.
    """
    inner = Inner()
    try:
        with inner.alone() if is_python(node) else nullcontext(), torch.set_grad_enabled(how.create_graph):
            ran = (_wide if how.wide else _narrow)(node, info, tuple(grads), how)
    except RuntimeError as error:
        if FREED in str(error):
            raise BackprobeError(
                f"{info.label} cannot be run: a backward has freed what it had saved. Make the replay before "
                "loss.backward(), or keep the graph with loss.backward(retain_graph=True)"
            ) from error
        raise
    finally:
        with private.unseen():
            found = inner.collect()
    return replace(ran, inner=found)


def _narrow(node: Any, info: NodeInfo, grads: tuple[Any, ...], how: How) -> Ran:
    """In its own precision."""
    if not how.hooks:
        return Ran(grads, _only(how.wanted, call_node(node, info, grads)))
    if all(g is None for g in grads):
        return Ran(*_empty(node, info, grads))  # see Note [Nodes without a gradient]
    if info.seq is None or is_python(node) or has_hooks(node):
        return Ran(*_in_engine(node, grads, how.create_graph, how.wanted))
    grads = after_tensor_hooks(node, grads, how.create_graph)
    return Ran(grads, _only(how.wanted, call_node(node, info, grads)))


def _wide(node: Any, info: NodeInfo, grads: tuple[Any, ...], how: How) -> Ran:
    """In float64; see Note [Hooks beside a node in float64]."""
    if not how.hooks:
        return Ran(grads, call_node_wide(node, info, grads), wide=True)
    grads, hooked = before_wide(node, grads)
    if info.seq is None:
        return Ran(grads, (), note=hooked, wide=True)
    after = list(hooks_of(node, node.register_hook).values())
    try:
        out, note = call_node_wide(node, info, grads), ""
    except BackprobeError as error:
        narrow = _as_taken(node, grads)
        out, note = tuple(map(widened, call_node(node, info, narrow))), str(error)
    wide = not note
    if after:
        given = tuple(
            _like(g, child._input_metadata[n]) if child is not None else g
            for g, (child, n) in zip(out, node.next_functions, strict=True)
        )
        came, made = _as_taken(node, grads), given
        for hook in after:
            made = _replaced(hook(made, came), made)
        out, more = _unless_equal(out, given, made)
        hooked = hooked or more
    return Ran(grads, out, note="; ".join(filter(None, (note, hooked))), wide=wide)


#: Said where a hook has changed a gradient of a node in float64.
_IN_THEIRS = "a hook changed its gradient, in its own precision: what it gave is not of float64"


def before_wide(node: Any, grads: tuple[Any, ...], on_node: bool = True) -> tuple[tuple[Any, ...], str]:
    """Gradients in float64 as the hooks before `node` leave them, and what is to be said of it.

    :param on_node: whether those on the node itself run, or only those of the tensors that it made.
    """
    given = _as_taken(node, grads)
    made = after_tensor_hooks(node, given, False)
    for hook in [] if not on_node else list(hooks_of(node, node.register_prehook).values()):
        made = _replaced(hook(made), made)
    return _unless_equal(tuple(map(widened, grads)), given, made)


def _as_taken(node: Any, grads: Sequence[Any]) -> tuple[Any, ...]:
    """`grads` in the precision in which `node` takes them."""
    return tuple(_like(g, m) for g, m in zip(grads, node._input_metadata, strict=True))


def _like(grad: Any, metadata: Any) -> Any:
    return None if grad is None else grad.to(metadata.dtype)


def _unless_equal(wide: Sequence[Any], given: Sequence[Any], made: Sequence[Any]) -> tuple[tuple[Any, ...], str]:
    """`wide` where hooks made of `given` the same again, else what they `made`."""
    same = [a is b or bitwise_equal(a, b) for a, b in zip(given, made, strict=True)]
    out = tuple(w if s else widened(m) for w, s, m in zip(wide, same, made, strict=True))
    return out, "" if all(same) else _IN_THEIRS


def _only(wanted: Sequence[int] | None, out: tuple[Any, ...]) -> tuple[Any, ...]:
    return out if wanted is None else tuple(g if k in wanted else None for k, g in enumerate(out))


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
