"""Detects hooks that read ``.grad`` before the running backward has written it.

Note [Hooks of leaves]: hooks on a leaf run before its AccumulateGrad node, and before all hooks on that
node. To intercept what they read, a hook of ours is placed first on each leaf with hooks for the duration of the call,
and pushes the recorder's function mode; a hook on the node pops it. Full backward hooks of modules run inside a node
for which the mode is pushed anyway.
"""

from __future__ import annotations

import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...records import Site, StaleRead
from ...torch_internals import code_objects, private
from ..backward.active_backward import ActiveBackward
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .module_hooks import GRADIENT_HOOK_METHODS, registered_at

if TYPE_CHECKING:
    import torch
    from torch.utils.hooks import RemovableHandle


class StaleGradReadTracker(Tracker):
    """Tracker of early reads of ``.grad``, by the line that reads."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without reads."""
        self._context, self._frames = context, context.frames
        #: The leaves of the running outermost call, by id: ``.grad`` when the call began, as a reference and a version
        #: counter; ``None`` and 0 without a gradient.
        self._grads_at_start: dict[int, tuple[weakref.ref[torch.Tensor] | None, int]] = {}
        self._handles: list[RemovableHandle] = []
        self._found: dict[Site, StaleRead] = {}

    def backward_attaching(self, running: ActiveBackward) -> None:
        """Record ``.grad`` of each leaf when an outermost call begins, and intercept the hooks of these leaves."""
        recorder = self._context.recorder
        if not recorder.inspecting or running.inside is not None:
            return
        here = recorder.is_here()
        with private.disable_function_modes():
            for i, leaf in running.graph.leaves:
                self._grads_at_start[id(leaf)] = _state(leaf.grad)
                if leaf._backward_hooks and here:
                    hooks = leaf._backward_hooks
                    handle = leaf.register_hook(recorder.push)
                    self._handles.append(handle)
                    for at in [at for at in hooks if at != handle.id]:  # the engine calls hooks in insertion order
                        hooks[at] = hooks.pop(at)
                    running.entered.add(i)

    def backward_detaching(self, running: ActiveBackward) -> None:
        """Forget the gradients at the start of an outermost call, and remove our hooks."""
        if running.inside is None:
            self._grads_at_start = {}
            while self._handles:
                self._handles.pop().remove()

    def leaf_grad_read(self, tensor: torch.Tensor, value: object, frame: FrameType | None) -> None:
        """Record a hook that reads ``.grad`` of a leaf during a call, if it still is what it was when the call
        began.
        """
        before = self._grads_at_start.get(id(tensor))
        if before is None or not _is_same(before, _state(value)) or len(self._found) >= 20:
            return
        spot, inner = self._frames.spot(frame), None
        under = (code_objects.MODULE_HOOKS_FILE, code_objects.TENSOR_HOOKS_FILE)
        while frame is not None and frame.f_code.co_filename not in under:
            inner = frame if self._frames.is_user(frame.f_code) else inner
            frame = frame.f_back
        site = self._frames.site(spot)
        if site is None or site in self._found or frame is None or inner is None:
            return
        on = "module" if frame.f_code.co_filename == code_objects.MODULE_HOOKS_FILE else "tensor"
        methods = GRADIENT_HOOK_METHODS if on == "module" else ("register_hook",)
        where = registered_at(self._frames, inner.f_code, methods)
        context = self._context
        self._found[site] = StaleRead(context.names.of(tensor), on, site, where, value is None, context.steps.index)

    def records(self) -> tuple[StaleRead, ...]:
        """Return a record of each line that reads too early."""
        return tuple(self._found.values())


def _state(grad: Any) -> tuple[weakref.ref[torch.Tensor] | None, int]:
    """Return a reference to a gradient and its version counter; (``None``, 0) without one."""
    return (None, 0) if grad is None else (private.tensor_ref(grad), grad._version)


def _is_same(
    one: tuple[weakref.ref[torch.Tensor] | None, int], other: tuple[weakref.ref[torch.Tensor] | None, int]
) -> bool:
    """Return whether two such states are of the same, unchanged gradient."""
    return one[0] is other[0] and one[1] == other[1]
