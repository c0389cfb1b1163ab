"""Undoes the additions to ``.grad`` of backwards inside a node: reentrant checkpoints run one.

Note [Gradients added inside a node]: While the node runs, leaves that such a backward reaches have no ``.grad``, so
that their ``.grad`` afterwards is exactly the addition. It is read after the node has run, not before: a checkpoint
reads ``.grad`` of leaves that it has created.

Note [Leaves that a node makes]: They are freed once it has run. Only leaves that stay alive are the user's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch.overrides import TorchFunctionMode

from ..observe.forward.torch_call_recorder import TorchCallRecorder
from ..records import ACCUMULATE_SEQ
from ..torch_internals import private
from ..torch_internals.entry_points import BY_FUNCTION, node_of
from ..torch_internals.walk import Plans, walk


class Passing(TorchFunctionMode):
    """A debugger's function mode that passes backward calls to it."""


def is_python(node: object) -> bool:
    """Return whether it is the node of a ``Function`` written in Python."""
    return runs_python(type(node))


def runs_python(kind: type) -> bool:
    """Return whether a node type belongs to a ``Function`` written in Python."""
    return issubclass(kind, torch.autograd.function.BackwardCFunction)


class Inner(TorchFunctionMode):
    """Function mode that is active while one Python node runs; ``collect`` ends it."""

    def __init__(self) -> None:
        """Begin with no leaf set aside."""
        super().__init__()
        self._kept: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor | None]] = {}

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run a torch function that the node called. A call of ``backward`` runs with the ``.grad`` of its leaves set
        aside.
        :returns: the function's result.
        """
        kwargs = kwargs or {}
        entry = BY_FUNCTION.get(func)
        if entry is None or entry.kind == "autograd.grad":  # that adds nothing
            return func(*args, **kwargs)
        nodes = walk([node_of(root) for root in entry.begins_at(args, kwargs)], Plans()).nodes
        with ExitStack() as stack:
            for node in nodes:
                if is_python(node):  # it may run a backward in its turn
                    stack.callback(node.register_prehook(self._enter).remove)
                    stack.callback(node.register_hook(self._leave).remove)
                elif node._sequence_nr() == ACCUMULATE_SEQ:
                    self._keep(node.variable)
            stack.enter_context(no_hooks_after(nodes))
            stack.enter_context(same_modes_after_an_error())
            return func(*args, **kwargs)

    def _keep(self, leaf: torch.Tensor) -> None:
        """Set the ``.grad`` of `leaf` aside and make it ``None``, unless that was already done."""
        kept = self._kept.get(id(leaf))
        if kept is None or kept[0]() is not leaf:
            self._kept[id(leaf)] = private.tensor_ref(leaf), leaf.grad
            leaf.grad = None

    def collect(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the additions as (leaf, gradient) pairs, and restore ``.grad``."""
        found = []
        for ref, old in self._kept.values():
            leaf = ref()
            if leaf is not None:  # see Note [Leaves that a node makes]
                if leaf.grad is not None:
                    found.append((leaf, leaf.grad))
                leaf.grad = old
        self._kept.clear()
        return found

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Activate this mode, keeping only the user's function modes: a re-run is not a backward call of the user.

        Torch function modes may be disabled around the caller.
        """
        stack = private.function_modes()
        depth = len(stack)
        for _ in stack:
            private.pop_function_mode()
        for mode in stack:
            if not isinstance(mode, (TorchCallRecorder, Passing)):
                private.push_function_mode(mode)
        try:
            with private.enable_function_modes(), self:
                yield
        finally:
            while private.mode_depth():
                private.pop_function_mode()
            for mode in stack:
                private.push_function_mode(mode)
            assert private.mode_depth() == depth

    def _enter(self, *grads: object) -> None:
        """Activate this mode before a Python node inside runs; used as its prehook."""
        private.push_function_mode(self)

    def _leave(self, *grads: object) -> None:
        """Deactivate this mode after a Python node inside has run; used as its posthook."""
        private.pop_function_mode()


@contextmanager
def nothing_accumulated(nodes: Sequence[torch.autograd.graph.Node]) -> Iterator[None]:
    """Make a backward over `nodes` inside add nothing to ``.grad``, and call no post-accumulate hooks."""
    inners: list[Inner] = []

    def enter(grads: object) -> None:
        """Activate a new ``Inner`` mode before a Python node runs; used as its prehook."""
        inners.append(Inner())
        private.push_function_mode(inners[-1])

    def leave(outgoing: object, incoming: object) -> None:
        """Deactivate the mode after the node has run, and discard what was added to ``.grad``; used as its posthook."""
        private.pop_function_mode()
        inners.pop().collect()

    with ExitStack() as stack:
        stack.callback(lambda: [inner.collect() for inner in reversed(inners)])
        for node in nodes:
            if is_python(node):
                stack.callback(node.register_prehook(enter).remove)
                stack.callback(node.register_hook(leave).remove)
            elif node._sequence_nr() == ACCUMULATE_SEQ:
                stack.callback(node.register_prehook(lambda grads: (None,)).remove)
        stack.enter_context(no_hooks_after(nodes))
        stack.enter_context(same_modes_after_an_error())
        yield


@contextmanager
def no_hooks_after(nodes: Sequence[torch.autograd.graph.Node]) -> Iterator[None]:
    """Remove the hooks that run after accumulation into the leaves of `nodes`, and restore them."""
    kept = []
    for node in nodes:
        if node._sequence_nr() == ACCUMULATE_SEQ:
            hooks = private.post_accumulate_hooks(node.variable)
            if hooks:
                kept.append((hooks, dict(hooks)))
                hooks.clear()
    try:
        yield
    finally:
        for hooks, old in kept:
            new = dict(hooks)
            hooks.clear()
            hooks.update({**old, **new})


@contextmanager
def same_modes_after_an_error() -> Iterator[None]:
    """Restore the stack of function modes if the block raises: the posthook of the node that raised did not run."""
    depth = private.mode_depth()
    try:
        yield
    except BaseException:
        while private.mode_depth() > depth:
            private.pop_function_mode()
        raise
