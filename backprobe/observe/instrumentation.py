"""Attaches to torch: everything while a step is recorded, otherwise only an interceptor of engine calls.

Note [Pending switches]: while the handler of a function mode runs, torch has taken the mode off the stack, and
puts it back afterwards whatever was done in between. A switch that is requested inside the handler of the recorder
therefore waits until a module is called, or until a step begins elsewhere. Scripts without modules have no such
place: when a backward call is over, the recorder is marked to stay off the stack.

Note [Held in a test]: torch's own ``TestCase`` compares the length of the stack of function modes before and after each
test, and removes modes that were added meanwhile. So while a test runs that began after us, the recorder stays on the
stack, or stays off it. If a step is not recorded, the recorder is idle: it calls the original function, and engine
calls are intercepted.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from ..basics.torch_texts import GLOBAL_HOOKS, NO_ROOM
from ..torch_internals import engine_calls, private
from ..torch_internals.uncompiled import disable_dynamo, dynamo_passthrough
from .backward.engine_interceptor import call_of
from .backward.observers import BackwardObservers
from .events import Events
from .forward.observers import ForwardObservers
from .forward.torch_call_recorder import DYNAMO
from .recording_state import RecordingState

#: The node counter below which nodes are unrecorded, while nothing is recorded: no node has a number as high.
NONE_RECORDED = 1 << 62


class Instrumentation:
    """Switches the recorder and the module hooks on and off."""

    def __init__(
        self,
        forward: ForwardObservers,
        backward: BackwardObservers,
        state: RecordingState,
        events: Events,
    ) -> None:
        """Prepare without attaching anything."""
        self._recorder, self._modules = forward.recorder, forward.modules
        self._router, self._interceptor, self._intercepted = backward.router, backward.interceptor, backward.intercepted
        self._state, self._events = state, events
        self._dynamo = private.DynamoActivity(self._dynamo_activity_changed, lambda error: events.fault(self, error))
        #: Whether anything is attached.
        self._attached = False
        #: The switch that is pending: Note [Pending switches].
        self._pending_switch: bool | None = None
        #: The number of modes on the stack below the recorder, and of running tests, when everything was attached.
        self._stack_depth = self._tests_at_attach = 0
        self._pid = os.getpid()
        #: The filters of warnings that we added.
        self._warning_filters: list[Any] = []

    def begin(self) -> None:
        """Measure what torch spends on calling us; nodes that exist by now are not recorded."""
        self._recorder.begin()
        self._modules.begin()

    def attach(self) -> None:
        """Attach everything that observes torch in this process: Dynamo's activity and the recorder.

        Does nothing if attached.
        """
        if not self._attached:
            self._attached, self._pid = True, os.getpid()
            disable_dynamo()
            self._ignore_warnings()
            self._stack_depth, self._tests_at_attach = private.mode_depth(), tests_running()
            self._dynamo.attach()
            self._attach_recorder()

    def _ignore_warnings(self) -> None:
        """Add filters for two warnings of torch that only our hooks cause."""
        # The first warning is about global hooks that run twice around an OptimizedModule: our hooks tell it from the
        # module inside it. The second: a module raised at the recursion limit, so our hooks had no stack left.
        for message in (GLOBAL_HOOKS, NO_ROOM):
            warnings.filterwarnings("ignore", message=message)
            self._warning_filters.append(warnings.filters[0])

    def give_up(self) -> None:
        """Stop observing, even in the middle of a call. Hooks and modes stay attached until ``detach``."""
        self._intercepted.stop()
        self._recorder.observe(False, self._recorder.inspecting)
        self._modules.stop()
        engine_calls.unlisten(self._interceptor)

    def detach(self) -> None:
        """Detach everything: recorder, module hooks, interceptor, Dynamo listener and warning filters."""
        self._attached = False
        while self._warning_filters:
            if (one := self._warning_filters.pop()) in warnings.filters:
                warnings.filters.remove(one)  # type: ignore[attr-defined]
        engine_calls.unlisten(self._interceptor)
        private.come_back()
        self._detach_recorder()
        self._dynamo.detach()

    def set_recording(self, on: bool, call_over: bool = False) -> None:
        """Switch recording on or off. While it is off, backward calls are intercepted and only counted or diagnosed.

        Does nothing if nothing is attached; may be postponed (Note [Pending switches]).

        :param call_over: the backward call that goes through the recorder is over.
        """
        handling, self._pending_switch = self._recorder.handling, None
        if not self._attached or (on == self._state.attached and (on or not self._recorder.idle)):
            return
        held = self._is_held()
        if held and ((on and not self._recorder.idle) or on == self._state.attached):
            return
        if handling and not held and (on or not call_over or handling > 1 or not private.can_stay_off()):
            self._pending_switch = on
            return
        if on:
            engine_calls.unlisten(self._interceptor)
            self._attach_recorder()
        elif engine_calls.listen(self._interceptor):
            was_idle = self._recorder.idle
            if held:
                self._make_idle()
            else:
                if handling:
                    private.stay_off(self._recorder)
                self._detach_recorder()
            if was_idle:  # the test that held the recorder on the stack is over
                return
            self._state.recorded_from = NONE_RECORDED
            self._events.about_to_write.emit()  # pending values are measured now

    def leave_calls_to_engine(self, unrecorded: bool) -> None:
        """Let the interceptor handle backward calls although everything is attached, in steps that are `unrecorded`:
        the first ones of a run at ``--level minimal``, in which the modules are learnt.
        """
        if not self._state.attached or unrecorded == self._state.calls_to_engine:
            return
        if not unrecorded:
            engine_calls.unlisten(self._interceptor)
            self._state.calls_to_engine = False
            self._record_from_here()
        elif engine_calls.listen(self._interceptor):
            self._state.calls_to_engine, self._state.recorded_from = True, NONE_RECORDED

    def may_record(self) -> bool:
        """Return whether the next step can be recorded: Note [Held in a test]."""
        return self._state.attached or self._recorder.idle or not self._is_held()

    def _is_held(self) -> bool:
        """Return whether a test of ``unittest`` runs that began after everything was attached."""
        return tests_running() > self._tests_at_attach

    def apply_pending_switch(self) -> None:
        """Carry out the pending switch, if there is one. Called outside of the recorder's handlers."""
        if self._pending_switch is not None:
            self.set_recording(self._pending_switch)

    def _attach_recorder(self) -> None:
        """Put the recorder on the mode stack and the hooks on modules; nodes made from now on are recorded."""
        recorder = self._recorder
        self._modules.start()
        if not recorder.idle:
            recorder.enter_stack(self._stack_depth, DYNAMO if self._dynamo.active else 0)
        recorder.set_idle(False)
        if self._dynamo.active:
            self._hide_from_dynamo()
        private.show_backward(recorder)
        self._record_from_here()
        self._state.attached = True

    def _record_from_here(self) -> None:
        """Note that recording begins with the next node: the ones before have no lines."""
        now = private.next_sequence_nr()
        if self._state.recorded_from:  # steps were left out
            self._recorder.log.mark_unrecorded(now)
            self._state.recorded_from = now
        self._recorder.skip_nodes()

    def _dynamo_activity_changed(self, active: bool) -> None:
        """Hide from Dynamo while it is active on this thread. See Note [Out of Dynamo's sight]."""
        if self._state.attached or self._recorder.idle:
            if active:
                self._hide_from_dynamo()
            else:
                engine_calls.unlisten(self._observe_hidden_call)
                self._recorder.hide_from_dynamo(False)
                self._modules.hide_from_dynamo(False)

    def _hide_from_dynamo(self) -> None:
        """Take the recorder and the module hooks away while Dynamo is active; engine calls are observed by a listener
        instead.
        """
        self._recorder.hide_from_dynamo(True)
        self._modules.hide_from_dynamo(True)
        if self._state.attached:
            engine_calls.listen(self._observe_hidden_call)

    @dynamo_passthrough
    def _observe_hidden_call(
        self, engine: Callable[..., object], roots: object, *args: object, **kwargs: object
    ) -> object:
        """Run a backward call, and observe it if the function mode is removed because Dynamo is active; return its
        result.
        """
        recorder = self._recorder
        if (
            not recorder.is_hidden_from_dynamo
            or self._dynamo.compiles
            or not recorder.is_here()
            or os.getpid() != self._pid
        ):
            return engine(roots, *args, **kwargs)
        call = call_of(roots, args, kwargs, sys._getframe(1))
        return self._router.run_engine(*call, partial(engine, roots, *args, **kwargs))

    def _detach_recorder(self) -> None:
        """Take the recorder off the mode stack and the hooks off modules."""
        engine_calls.unlisten(self._observe_hidden_call)
        private.unshow_backward(self._recorder)
        self._recorder.leave_stack()
        self._state.attached = self._state.calls_to_engine = False
        self._recorder.set_idle(False)
        self._modules.stop()

    def _make_idle(self) -> None:
        """Keep the recorder on the mode stack without recording, while a test checks the stack."""
        private.unshow_backward(self._recorder)
        self._state.attached = self._state.calls_to_engine = False
        self._recorder.set_idle(True)
        self._modules.make_idle()


def tests_running() -> int:
    """Return how many tests of ``unittest`` run now, nested, according to this thread's stack."""
    case: object = getattr(sys.modules.get("unittest.case"), "TestCase", None)
    code = getattr(getattr(case, "run", None), "__code__", None)
    count, frame = 0, sys._getframe(1) if code is not None else None
    while frame is not None:
        count += frame.f_code is code
        frame = frame.f_back  # type: ignore[assignment]
    return count
