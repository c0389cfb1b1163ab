"""Handlers for functions that matter beyond the nodes that they make, such as backward entry points and ``.grad``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from ...source.roots import modules_in_sight
from ...torch_internals import code_objects, private
from ...torch_internals.entry_points import EntryPoint, entry_points
from ...torch_internals.grad_scaler import UPDATE_SCALE
from ...torch_internals.uncompiled import dynamo_passthrough
from ..forward.observers import ForwardObservers
from ..forward.torch_call_recorder import TorchCallRecorder
from ..schedule.steps import StepWatch
from .call_router import CallRouter
from .calls import BackwardCalls
from .pending_call_record import PendingCallRecord

if TYPE_CHECKING:
    from ...source.caller_frames import Args, Function, Kwargs
    from ..forward.torch_call_recorder import Handler

#: Functions that expose the memory of a tensor.
_MEMORY_EXPORTS = (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__)


@dataclass
class DebuggedCall:
    """A backward call that a debugger runs."""

    recorder: TorchCallRecorder
    calls: BackwardCalls
    entry: EntryPoint
    function: Function
    args: Args
    kwargs: Kwargs
    frame: FrameType

    def __call__(self) -> object:
        """Make the call."""
        return self.recorder.call(self.function, self.args, self.kwargs, self.frame)

    def begin(self, roots: Sequence[object], leaves: list[torch.Tensor]) -> int | None:
        """Count the call, from `roots` to `leaves`. Return the index of the training step; ``None`` if that failed."""
        try:
            return self.calls.count_debugged_call(self.entry, roots, leaves)
        except Exception as error:
            self.recorder.events.fault(self, error)
            return None

    def keep_graph(self) -> None:
        """Make the call keep its graph, whatever its arguments say."""
        arguments = self.entry.bind(self.args, self.kwargs)
        if arguments is not None:
            self.args, self.kwargs = (), {**arguments, "retain_graph": True}

    def error_record(self, error: BaseException, ran: Sequence[int]) -> PendingCallRecord | None:
        """Return the record of the call after it raised."""
        return self.calls.error_record(self.entry, self.args, self.kwargs, self.frame, error, ran)


class InterceptedFunctions:
    """Registers a handler with the recorder for each function that is intercepted.

    A handler calls the function and returns its result.
    """

    def __init__(self, forward: ForwardObservers, steps: StepWatch, calls: BackwardCalls, router: CallRouter) -> None:
        """Register the handlers with the recorder; they only call their functions until ``start``."""
        recorder = forward.recorder
        self._recorder, self._names, self._steps, self._calls = recorder, forward.names, steps, calls
        self._router, self._events = router, recorder.events
        #: Whether the handlers do more than call the function, and in which process.
        self.is_on = False
        self.pid = os.getpid()
        #: A debugger that runs backward calls; they are not recorded then.
        self.debugger: Callable[[DebuggedCall], object] | None = None
        for entry in entry_points():
            recorder.special[entry.function] = self._entry_point(entry)
        for function in _MEMORY_EXPORTS:
            recorder.special[function] = self._read_memory
        recorder.special[torch.Tensor.data.__get__] = self._read_data  # type: ignore[attr-defined]
        recorder.special[torch.Tensor.register_hook] = self._register_hook
        recorder.special[torch.Tensor.grad.__get__] = self._read_grad  # type: ignore[attr-defined]
        recorder.special[torch.Tensor.grad.__set__] = self._set_grad  # type: ignore[attr-defined]
        recorder.special[torch.Tensor.data.__set__] = self._set_data  # type: ignore[attr-defined]
        recorder.special[torch.Tensor.is_leaf.__get__] = self._read_is_leaf  # type: ignore[attr-defined]
        recorder.special[private.set_grad_enabled] = self._set_grad_mode
        if UPDATE_SCALE is not None:
            recorder.special[UPDATE_SCALE] = self._update_scale
        recorder.special[torch.Tensor.requires_grad.__set__] = self._set_requires_grad  # type: ignore[attr-defined]
        recorder.special[torch.Tensor.requires_grad_] = self._set_requires_grad

    def start(self) -> None:
        """Begin to observe the intercepted functions in this process."""
        self.is_on, self.pid = True, os.getpid()

    def stop(self) -> None:
        """Only call the functions from now on."""
        self.is_on = False

    def leave(self) -> None:
        """Only call the functions from now on, in a forked child."""
        self.is_on, self.pid = False, os.getpid()

    def debug_with(self, debugger: Callable[[DebuggedCall], object]) -> None:
        """Let a debugger run the backward calls from now on: `debugger` makes each, and it is not recorded."""
        self.debugger = debugger

    @dynamo_passthrough
    def _entry_point(self, entry: EntryPoint) -> Handler:
        """Return the handler of a function that runs backward, such as ``Tensor.backward``."""

        def call(func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
            """Make a backward call by the debugger, by the router that records it, or unobserved if observing is
            off.
            """
            if os.getpid() != self.pid:
                return self._recorder.call(func, args, kwargs, frame)
            if self.debugger is not None:
                return self.debugger(DebuggedCall(self._recorder, self._calls, entry, func, args, kwargs, frame))
            if not self.is_on:
                return self._recorder.call(func, args, kwargs, frame)
            self._recorder.handling += 1
            try:
                return self._router.run(entry, func, args, kwargs, frame)
            finally:
                self._recorder.handling -= 1

        return call

    @dynamo_passthrough
    def _register_hook(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Report that the script registers a hook on a tensor, then register it as torch does."""
        tensor = args[0] if args else kwargs.get("self")
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
            self._safely(self._calls.hook_registered, tensor.grad_fn)
            self._events.hook_registered.emit(tensor, args[1] if len(args) > 1 else kwargs.get("hook"), frame)
        return self._recorder.call(func, args, kwargs, frame)

    def _safely(self, function: Callable[..., None], *given: object) -> None:
        """Call `function`; an error in it is an internal one: it is counted, and the script does not see it."""
        try:
            function(*given)
        except Exception as error:
            self._events.fault(self, error)

    @dynamo_passthrough
    def _read_data(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Read ``tensor.data``, and emit it outside of built-in optimizers."""
        out = self._recorder.call(func, args, kwargs, frame)
        if self._recorder.recording and not self._recorder.in_builtin_optimizer:
            self._events.data_read.emit(args[0], out, frame)
        return out

    @dynamo_passthrough
    def _read_memory(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Call ``tensor.numpy()`` or the like, and emit that it exposes the tensor's memory."""
        out = self._recorder.call(func, args, kwargs, frame)
        if self._recorder.recording and not self._recorder.optimizing:
            self._events.memory_read.emit(func, args[0], out, frame)
        return out

    @dynamo_passthrough
    def _read_grad(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Emit a read of ``.grad`` of a leaf, or of a non-leaf if it is ``None``.

        During a backward, the gradient of a leaf may be incomplete: the read gets an event of its own.
        """
        value = self._recorder.call(func, args, kwargs, frame)
        if self.is_on:
            if args[0].grad_fn is None:
                if self._calls.running:
                    self._events.leaf_grad_read.emit(args[0], value, frame)
                elif value is not None and not self._recorder.optimizing:
                    self._events.grad_read_or_set.emit(value, False, frame)
            elif value is None:
                self._events.nonleaf_grad_read.emit(args[0], frame)
        return value

    @dynamo_passthrough
    def _set_grad(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Set ``tensor.grad``, and emit it outside of backward calls and optimizers: as cleared if it is set to
        ``None``.
        """
        out = self._recorder.call(func, args, kwargs, frame)
        if self.is_on and not (self._calls.running or self._recorder.optimizing):
            if args[1] is None:
                self._events.grad_cleared.emit(args[0], frame)
            else:
                self._events.grad_read_or_set.emit(args[1], True, frame)
        return out

    @dynamo_passthrough
    def _set_data(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Set ``tensor.data``, and emit it for a leaf outside of optimizers, also if a parameter's dtype changes."""
        tensor = args[0]
        dtype = tensor.dtype if type(tensor) is torch.nn.Parameter else None  # a subclass may notice that it is read
        out = self._recorder.call(func, args, kwargs, frame)
        if self.is_on and not self._recorder.optimizing and tensor.grad_fn is None:
            self._events.data_assigned.emit(tensor, frame)
            if dtype is not None and tensor.dtype is not dtype:
                self._events.parameter_cast.emit(tensor, frame)
        return out

    @dynamo_passthrough
    def _read_is_leaf(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Detect new optimizers: an optimizer reads ``is_leaf`` of every parameter that it is given."""
        if self.is_on and frame.f_code is code_objects.ADD_PARAM_GROUP:
            self._safely(self._note_optimizer, frame)
        return self._recorder.call(func, args, kwargs, frame)

    def _note_optimizer(self, frame: Any) -> None:
        """Note the optimizer that is being made in `frame`, with its line and the modules that variables around it
        hold.
        """
        above, frames = frame.f_back, self._names.frames
        optimizer = frame.f_locals.get(code_objects.OPTIMIZER)
        if optimizer is None:
            return
        self._steps.optimizers.note(
            optimizer, frames.spot(frame), lambda: [m for _, m in modules_in_sight(above, frames)]
        )

    @dynamo_passthrough
    def _update_scale(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Note that a ``GradScaler`` updates its scale, then update it."""
        if self.is_on and args:
            self._safely(self._steps.note_scaler_update, args[0])
        return self._recorder.call(func, args, kwargs, frame)

    @dynamo_passthrough
    def _set_requires_grad(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Emit that ``requires_grad`` of a tensor is about to be set, then set it."""
        if self.is_on:
            self._safely(self._note_requires_grad, args, kwargs, frame)
        return self._recorder.call(func, args, kwargs, frame)

    def _note_requires_grad(self, args: Args, kwargs: Kwargs, frame: FrameType) -> None:
        """Emit ``requires_grad_set`` for a parameter, or ``leaf_begins`` for another tensor for which it is turned
        on.
        """
        on = bool(args[1] if len(args) > 1 else kwargs.get("requires_grad", True))
        if isinstance(args[0], torch.nn.Parameter):
            self._events.requires_grad_set.emit(args[0], on, frame)
        elif on:
            self._events.leaf_begins.emit(args[0], frame)

    @dynamo_passthrough
    def _set_grad_mode(self, func: Function, args: Args, kwargs: Kwargs, frame: Any) -> object:
        """Emit the line that sets gradient mode, outside of torch's own context managers, then set it."""
        if self.is_on and threading.get_ident() == self._recorder.thread:
            on = bool(args[0] if args else kwargs.get("mode", kwargs.get("enabled", True)))
            while frame is not None and frame.f_code.co_filename == code_objects.GRAD_MODE_FILE:
                frame = frame.f_back
            if frame is not None:
                self._events.grad_mode_set.emit(on, frame)
        return self._recorder.call(func, args, kwargs, frame)
