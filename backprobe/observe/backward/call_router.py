"""Routes each backward call that the recorder sees: it is recorded, only counted, or compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...torch_internals import code_objects, private
from ...torch_internals.entry_points import EntryPoint, as_list, node_of
from ...torch_internals.uncompiled import dynamo_passthrough
from ...torch_internals.walk import Plans, walk
from ..forward.observers import ForwardObservers
from ..schedule.step_schedule import StepSchedule
from .calls import BackwardCalls, far_leaves
from .engine_interceptor import EngineInterceptor

if TYPE_CHECKING:
    from ...source.caller_frames import Args, Function, Kwargs


class CallRouter:
    """Passes a backward call to ``BackwardCalls`` or ``EngineInterceptor``, as the running step requires."""

    def __init__(
        self,
        forward: ForwardObservers,
        schedule: StepSchedule,
        calls: BackwardCalls,
        interceptor: EngineInterceptor,
    ) -> None:
        """Take the parts that backward calls are passed to."""
        self._recorder, self._values = forward.recorder, forward.values
        self._steps, self._state = schedule.steps, schedule.state
        self._calls, self._interceptor = calls, interceptor
        self._events, self._own = forward.recorder.events, forward.recorder.events.own

    @dynamo_passthrough
    def run(self, entry: EntryPoint, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> object:
        """Make the backward call `func` that `frame` made, and observe it as the running step requires."""
        call = partial(self._recorder.call, func, args, kwargs, frame)
        mark, run_call = self._own.begin(), None
        try:
            arguments = None
            if not self._is_shape_inference(frame):
                self._events.backward_begins.emit()
                arguments = entry.bind(args, kwargs)
            if arguments is not None:
                run_call = self._route(entry.kind, as_list(arguments.pop(entry.roots)), arguments, frame)
        except Exception as error:
            self._events.fault(self, error)
        self._own.since(mark)
        return call() if run_call is None else run_call(call)

    @dynamo_passthrough
    def run_engine(
        self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any, call: Callable[[], object]
    ) -> object:
        """Run a backward call that no function mode intercepted, and observe it if it is to be observed; return its
        result.
        :param call: runs the engine.
        """
        mark, run_call = self._own.begin(), None
        try:
            with private.disable_function_modes():
                if not self._is_shape_inference(frame):
                    self._events.backward_begins.emit()
                    run_call = self._route(kind, roots, arguments, frame)
        except Exception as error:
            self._events.fault(self, error)
        self._own.since(mark)
        return call() if run_call is None else run_call(call)

    def _is_shape_inference(self, frame: FrameType) -> bool:
        """Return whether a pipeline makes the call only to learn shapes; if so, drop the results of its forward."""
        if not code_objects.in_rehearsal(frame):
            return False
        self._values.flush()
        self._values.take_bad()
        return True

    def _route(
        self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType
    ) -> Callable[[Callable[[], object]], object] | None:
        """Decide how a backward call is observed: recorded, only counted, or not at all.
        :returns: a function that takes the call and runs it observed; ``None``: run the call unchanged.
        """
        nested = bool(self._state.running_calls)
        if self._steps.has_stepped and not nested:
            self._steps.finish()
        compiles = private.compiles_backward()
        if self._state.calls_to_engine and not (compiles or nested or self._recorder.recording):
            return None
        if compiles or not self._recorder.recording:
            self._calls.compiled_calls += compiles
            accumulates = kind != "autograd.grad"
            self._calls.count_call(roots, nested, self._steps.optimizers.sample_parameters() if accumulates else None)
            if accumulates and not nested and not compiles:
                self._steps.losses.note_unobserved_call(far_leaves(walk([node_of(root) for root in roots], Plans())))
            if not compiles or nested:
                return None
            return partial(self._interceptor.run_compiled, kind, roots, arguments, frame)
        return partial(self._calls.run_observed, partial(self._calls.begin, kind, roots, arguments, frame))
