"""Runs one node as the engine runs it: with its hooks and the user's code in it, and nothing after it.

Note [Hooks of a tensor]: The engine itself runs the hooks of a tensor: a call that begins at the node and requests the
gradient at the node runs these hooks and nothing else. No Python object lists them.

Note [One node in the engine]: A node with hooks of its own, a Python node, and an accumulator run in the engine, in a
call that begins there. A hook of ours, the last on the node, takes its outgoing gradients (for an accumulator the
incoming ones) and ends that call before anything else runs. All other nodes are called directly, which gives the same
result and is faster.

Note [Hooks beside a node in float64]: The node computes in float64; hooks run in their own precision, as they would in
the backward. If they change nothing, the gradient stays in float64. Otherwise their result is used, and a note says so.

Note [Nodes without a gradient]: A call cannot begin at a node that receives no gradient at all. Such a node is called
directly, with the hooks on it; hooks of the tensors that it created do not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import GradientEdge

from ..basics.errors import BackprobeError
from ..basics.torch_texts import FREED
from ..records import ACCUMULATE_SEQ
from ..torch_internals import private
from .backward_graph import NodeInfo
from .calling import call_node, call_node_wide
from .difference import bitwise_equal
from .double import widened
from .nested import Inner, is_python

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


class _Taken(BaseException):
    """Ends an engine call once its one node has run."""


def hooks_of(
    node: torch.autograd.graph.Node, register: Callable[[Callable[..., object]], RemovableHandle]
) -> dict[int, Callable[..., object]]:
    """Return the dict of hooks of one kind on `node`.

    :param register: ``node.register_hook`` or ``node.register_prehook``.
    """
    handle = register(_nothing)
    found: dict[int, Callable[..., object]] = handle.hooks_dict_ref()
    handle.remove()
    return found


def has_hooks(node: torch.autograd.graph.Node) -> bool:
    """Return whether `node` has hooks that run before or after it."""
    return bool(hooks_of(node, node.register_prehook) or hooks_of(node, node.register_hook))


def _nothing(*grads: object) -> None:
    """Do nothing: a hook that leaves all gradients."""
    return None


@dataclass(frozen=True)
class Ran:
    """The incoming and outgoing gradients of one node's run.

    :ivar incoming: its incoming gradients, after the hooks before it.
    :ivar outgoing: its outgoing gradients, one for each edge.
    :ivar inner: leaf and gradient for each leaf that a backward inside the node reached; ``.grad`` is unchanged.
    :ivar note: deviations from the request, with the reason.
    :ivar wide: whether it computed in float64.
    """

    incoming: tuple[torch.Tensor | None, ...]
    outgoing: tuple[torch.Tensor | None, ...]
    inner: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    note: str = ""
    wide: bool = False


@dataclass(frozen=True)
class How:
    """Options for running a node.

    :ivar hooks: whether the user's hooks on it and before it run.
    :ivar wide: compute in float64. If that is impossible and hooks run, the node runs in its own precision, and
        ``Ran.note`` gives the reason.
    :ivar wanted: indices of the edges that the call needs; ``None``: all.
    """

    hooks: bool = True
    create_graph: bool = False
    wide: bool = False
    wanted: Sequence[int] | None = None


def run_node(node: object, info: NodeInfo, grads: Sequence[torch.Tensor | None], how: How) -> Ran:
    """Run `node` with the given incoming gradients. All code that runs a node uses this function.

    Additions to ``.grad`` by a backward inside the node are undone.

    :raises BackprobeError: its saved tensors are freed; or, without hooks, it cannot run in float64.
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
        with private.disable_function_modes():
            found = inner.collect()
    return replace(ran, inner=found)


def _narrow(node: object, info: NodeInfo, grads: tuple[torch.Tensor | None, ...], how: How) -> Ran:
    """Run one node in its own precision, with its hooks if requested; return its gradients."""
    if not how.hooks:
        return Ran(grads, _only(how.wanted, call_node(node, info, grads)))
    if all(g is None for g in grads):
        return Ran(*_empty(node, info, grads))  # see Note [Nodes without a gradient]
    if info.seq is None or is_python(node) or has_hooks(node):
        return Ran(*_in_engine(node, grads, how.create_graph, how.wanted))
    grads = after_tensor_hooks(node, grads, how.create_graph)
    return Ran(grads, _only(how.wanted, call_node(node, info, grads)))


def _wide(node: torch.autograd.graph.Node, info: NodeInfo, grads: tuple[torch.Tensor | None, ...], how: How) -> Ran:
    """Run one node in float64, with its hooks if requested; in its own precision, with a note, if float64 is
    impossible.
    """
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
        out, more = _keep_wide_if_unchanged(out, given, made)
        hooked = hooked or more
    return Ran(grads, out, note="; ".join(filter(None, (note, hooked))), wide=wide)


#: The note for a hook that changed a gradient of a node in float64.
_IN_THEIRS = "a hook changed its gradient, in its own precision: what it gave is not of float64"


def before_wide(
    node: torch.autograd.graph.Node, grads: tuple[torch.Tensor | None, ...], on_node: bool = True
) -> tuple[tuple[torch.Tensor | None, ...], str]:
    """Return the float64 gradients after the hooks before `node`, and a note if a hook changed them.

    :param on_node: also run the hooks on the node itself, not only those of the tensors that it created.
    """
    given = _as_taken(node, grads)
    made = after_tensor_hooks(node, given, False)
    for hook in [] if not on_node else list(hooks_of(node, node.register_prehook).values()):
        made = _replaced(hook(made), made)
    return _keep_wide_if_unchanged(tuple(map(widened, grads)), given, made)


def _as_taken(node: torch.autograd.graph.Node, grads: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
    """Convert `grads` to the precision that `node` takes."""
    return tuple(_like(g, m) for g, m in zip(grads, node._input_metadata, strict=True))


def _like(grad: Any, metadata: Any) -> Any:
    """Return a gradient in the dtype that `metadata` says."""
    return None if grad is None else grad.to(metadata.dtype)


def _keep_wide_if_unchanged(
    wide: Sequence[object], given: Sequence[object], made: Sequence[object]
) -> tuple[tuple[torch.Tensor | None, ...], str]:
    """Return `wide` for each gradient that the hooks left unchanged, else their result `made`, widened; and the reason
    why the result is not float64, empty if it is.
    """
    same = [a is b or bitwise_equal(a, b) for a, b in zip(given, made, strict=True)]
    out = tuple(w if s else widened(m) for w, s, m in zip(wide, same, made, strict=True))
    return out, "" if all(same) else _IN_THEIRS


def _only(wanted: Sequence[int] | None, out: tuple[object, ...]) -> tuple[torch.Tensor | None, ...]:
    """Return the outgoing gradients at the indices `wanted`, ``None`` in place of the others."""
    return out if wanted is None else tuple(g if k in wanted else None for k, g in enumerate(out))


def after_tensor_hooks(
    node: object, grads: Sequence[torch.Tensor | None], create_graph: bool
) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients `grads` of a node's outputs as the hooks of those tensors change them."""
    roots = [(GradientEdge(node, k), g) for k, g in enumerate(grads) if g is not None]
    if not roots:
        return tuple(grads)
    asked = tuple(GradientEdge(node, k) for k in range(len(grads)))
    edges, given = zip(*roots, strict=True)
    found: tuple[torch.Tensor | None, ...] = private.run_engine(edges, given, True, create_graph, asked, True, False)
    return found


def _in_engine(
    node: torch.autograd.graph.Node,
    grads: Sequence[torch.Tensor | None],
    create_graph: bool,
    wanted: Sequence[int] | None,
) -> tuple[tuple[torch.Tensor | None, ...], tuple[torch.Tensor | None, ...]]:
    """Run one node in the engine; return its incoming and outgoing gradients. See Note [One node in the engine].

    :param wanted: indices of the edges that the call needs; ``None``: all.
    """
    taken: list[tuple[torch.Tensor | None, ...]] = []
    task: list[int] = []

    def first(incoming: object) -> None:
        """Note the number of this engine call. The first prehook."""
        # A user's hook may run a backward over the same node: that call has its own number, and starts later.
        if not task:
            task.append(private.graph_task())

    def before(incoming: Iterable[torch.Tensor | None]) -> None:
        """Take the incoming gradients of an accumulator, and end the call before it adds them."""
        if private.graph_task() == task[0]:
            taken[:] = [tuple(incoming), ()]
            raise _Taken

    def after(outgoing: Iterable[torch.Tensor | None], incoming: Iterable[torch.Tensor | None]) -> None:
        """Take the incoming and outgoing gradients of the node, and end the call."""
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


def _empty(
    node: torch.autograd.graph.Node, info: NodeInfo, grads: tuple[torch.Tensor | None, ...]
) -> tuple[tuple[torch.Tensor | None, ...], tuple[torch.Tensor | None, ...]]:
    """Run a node that receives no gradient; return its incoming and outgoing gradients.

    See Note [Nodes without a gradient].
    """
    for hook in list(hooks_of(node, node.register_prehook).values()):
        grads = _replaced(hook(grads), grads)
    if info.seq is None:
        return grads, ()
    out = call_node(node, info, grads)
    for hook in list(hooks_of(node, node.register_hook).values()):
        out = _replaced(hook(out, grads), out)
    return grads, out


def _replaced(new: object, old: tuple[object, ...]) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients that a hook returned, or the old ones if it returned ``None``."""
    if new is None:
        return old
    return new if isinstance(new, tuple) else (new,)
