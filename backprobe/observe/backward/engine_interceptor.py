"""Intercepts backward calls of steps whose nodes are not recorded.

Note [Steps that are not recorded]: no mode of ours is on in these steps, and modules have no hooks. Calls reach us
through the engine's function (Note [In place of the engine's function]). A loss that is not finite is detected before
the call, while its graph has all saved tensors: the call is then recorded as in any other step. If a call raises, its
graph still exists afterwards, and shows which nodes have run. Lines and modules come from a recorded step that made the
same nodes (``Layouts.assume``). Gradients that are not finite are detected when the call is over, on a few leaves: the
farthest from the loss, which non-finite values reach from any node on the way.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import torch

from ...torch_internals import code_objects, private
from ...torch_internals.async_scalars import Later
from ...torch_internals.engine_calls import arguments_of
from ...torch_internals.entry_points import as_list
from ...torch_internals.uncompiled import dynamo_passthrough
from ..events import Events
from ..recording_state import RecordingState
from ..schedule.budget import Budget
from .active_backward import ActiveBackward
from .calls import all_finite
from .fast_path import FastPath
from .sentinel_calls import SentinelCalls

#: Health of a gradient: finite and not zero, missing or zero, or non-finite.
HEALTHY, MISSING, NONFINITE = "fine", "gone", "bad"
#: The reason that is emitted for a call that gave a non-finite gradient.
BAD_GRADIENT = "a gradient is not finite"
#: How many times missing gradients make the next steps be inspected closely; the same for non-finite ones.
MAX_GRADIENT_ALARMS = 20
#: One check of gradients out of this many is timed, in fast-path steps.
TIMED_CHECK_INTERVAL = 16
#: True while a region is being compiled: calls are then traced, and not run.
_compiles = torch.compiler.is_compiling
_getpid, _get_ident, _profiled, _clock = os.getpid, threading.get_ident, private.profiled, time.perf_counter


class Call(NamedTuple):
    """A backward call as the user made it."""

    kind: str
    roots: Sequence[Any]
    arguments: dict[str, Any]
    frame: Any


class EngineInterceptor:
    """Receives the calls of the autograd engine in steps that are not recorded.

    :param later: fetches numbers from accelerators.
    """

    def __init__(
        self,
        counted: SentinelCalls,
        budget: Budget,
        events: Events,
        state: RecordingState,
        later: Later,
    ) -> None:
        self._steps, self._budget = counted.steps, budget
        self._passed = FastPath(counted.calls, counted.steps, budget, events)
        self._counted, self._events, self._own, self._recording = counted, events, events.own, state
        self._pid, self._thread = os.getpid(), threading.get_ident()
        self._last, self._alarms, self._turn = HEALTHY, {MISSING: 0, NONFINITE: 0}, 0
        #: The last health of gradients that an accelerator delivered.
        self._later, self._accelerator_state = later, HEALTHY
        #: Whether the backward of the running step is recorded, as far as its graph is known and no mode of the user
        #: would see our work (Note [Steps that repeat]); how many calls of the step were recorded so, and how many were
        #: not.
        self.repeating, self.repeated, self.others = False, 0, 0
        #: Seconds that a check of gradients takes in a fast-path step.
        self._each = 0.0

    @dynamo_passthrough
    def __call__(self, engine: Callable[..., Any], roots: Any, *args: Any, **kwargs: Any) -> Any:
        state = self._recording
        nested = state.in_unrecorded_call
        quick = bool(self._steps.only) and not nested and _get_ident() == self._thread
        quick = quick and self._passed.lets_pass(roots, args, kwargs)
        if not quick and (nested or _compiles() or _getpid() != self._pid or _get_ident() != self._thread):
            return engine(roots, *args, **kwargs)
        passes, call, begin = quick, None, None
        if not quick:
            given = roots, args, kwargs, sys._getframe(1)
            passes = bool(self._steps.passing) and self._passes(*given)
            if not passes:
                call, begin = self._safely(self._begins, *given) or (None, None)
        state.in_unrecorded_call = True
        try:
            if begin is not None:
                result = self._counted.calls.watched(begin, partial(engine, roots, *args, **kwargs))
            else:
                result = engine(roots, *args, **kwargs)
        except BaseException as error:
            if begin is None and _getpid() == self._pid:
                if quick:
                    given = roots, args, kwargs, sys._getframe(1)
                    self._counted.calls.between.reopen(self._passed.base)
                self._safely(self._raised, call or call_of(*given), error)
            raise
        finally:
            state.in_unrecorded_call = False
        if begin is not None:
            return result
        if call is not None:
            self._safely(self._ended, call)
        elif passes and self._budget.peeks and self._gave_nonfinite(quick):
            self._safely(self._gave_bad, roots, args, kwargs, sys._getframe(1))
        if passes and not quick:
            self._counted.calls.between.over()
            if self._steps.passing <= 1 and self._steps.alone:
                self._safely(self._events.outermost_call_ended.emit)
        return result

    def _passes(self, roots: object, args: object, kwargs: Any, frame: FrameType) -> bool:
        """Return whether a call belongs to a fast-path step, so that it needs no more work."""
        own, mark = self._own, None
        own.passes.left -= 1
        if own.passes.left <= 0:
            mark = own.mark()
        answer: bool | None = False
        try:
            self.settle()
            adds = bool(kwargs.get("accumulate_grad"))
            if _profiled():
                with private.unprofiled(), private.unseen():
                    answer = self._counted.lets_pass(roots, adds, frame, self._budget)
            else:
                with private.unseen():
                    answer = self._counted.lets_pass(roots, adds, frame, self._budget)
            if answer is None:
                self._events.novelty_found.emit(self._counted.step)
        except Exception as error:
            self._events.fault(self, error)
        if mark is not None:
            own.often(own.passes, mark, 0.0, False)
        return answer is not False

    def settle(self) -> None:
        """Account for the calls that took the fast path."""
        if self._passed.count:
            self._own.clocked += self._passed.count * self._passed.seconds
            self._counted.have_passed(*self._passed.take())

    def _safely(self, look: Callable[..., object], *given: object) -> Any:
        """Call `look` hidden from the user's modes and profilers. Returns its result; ``None`` if it fails."""
        mark = self._own.begin()
        try:
            with private.unseen():
                if not private.profiled():
                    return look(*given)
                with private.unprofiled():
                    return look(*given)
        except Exception as error:
            self._events.fault(self, error)
        finally:
            self._own.since(mark)
        return None

    def _begins(
        self, roots: object, args: object, kwargs: object, frame: FrameType
    ) -> tuple[Call, Callable[[], ActiveBackward | None] | None]:
        """Prepare a call.

        Returns the call as the user made it, and a function that begins to record it, if it is to be recorded.
        """
        counted = self._counted
        self.settle()
        counted.begins()
        call = call_of(roots, args, kwargs, frame)
        values = counted.values(call.roots)
        if self._explains(values):
            self._events.failure_found.emit(counted.step)
            if not private.compiles_backward():
                return call, partial(counted.calls.begin, *call)
            self._events.call_failed.emit("the loss is not finite")
            counted.is_usual(call.kind, call.roots, values, frame)
            counted.begins_bad(*call)
            return call, None
        if self._recording.calls_to_engine and call.kind != "autograd.grad":
            counted.look_for_witnesses(call.roots)
        if self.repeating and not (private.mode_depth() or private.in_mode() or private.compiles_backward()):
            running = counted.calls.repeated(*call)
            if running is not None:
                self.repeated += 1
                if not counted.repeats(running):
                    self._events.novelty_found.emit(counted.step)
                return call, partial(counted.calls.begin_repeated, running)
            self.others += 1
        if not counted.is_usual(call.kind, call.roots, values, frame):
            self._events.novelty_found.emit(counted.step)
        return call, None

    @dynamo_passthrough
    def in_one(self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any, proceed: Any) -> Any:
        """Make a call whose backward is compiled as a whole.

        Its nodes get no hooks. Errors in it are reported as in a step that is not recorded.
        """
        call = Call(kind, roots, arguments, frame)
        self._safely(self._begins_in_one, call)
        result = proceed()
        self._safely(self._ended_in_one, call)
        return result

    def _begins_in_one(self, call: Call) -> None:
        self._counted.look_for_witnesses(call.roots)
        if self._explains(self._counted.values(call.roots)):
            self._counted.begins_bad(*call)

    def _explains(self, values: Sequence[float | None]) -> bool:
        """Return whether a loss with these values is not finite, and is to be explained: Note [Bad losses in a row]."""
        budget = self._budget
        if all_finite(values):
            if any(value is not None for value in values):
                budget.good_loss()
            return False
        if budget.only_counts or not budget.explains:
            budget.count_bad_loss(self._counted.step)
            return False
        budget.explained += 1
        return True

    def _ended_in_one(self, call: Call) -> None:
        state = self._state_now() if call.kind != "autograd.grad" else self._last
        if state is NONFINITE and self._last is not NONFINITE and self._is_alarm(state):
            self._alarms[NONFINITE] += 1
            self._counted.gave_bad(*call)
        self._last = state

    def repeat(self, on: bool) -> None:
        """Record the backward of the next step, or not (Note [Steps that repeat])."""
        self.repeating = on

    def take_repetition_result(self) -> bool | None:
        """Return and reset whether a call of the finished step was recorded as a repetition of an earlier one.

        :returns: ``False`` if calls were tried and none was recorded so; ``None`` if none was tried.
        """
        repeated, others, self.repeated, self.others = self.repeated, self.others, 0, 0
        return bool(repeated) if repeated or others else None

    def _raised(self, call: Call, error: BaseException) -> None:
        self.settle()
        self._counted.steps.tell_passed()  # optimizers that stepped since a call was counted
        if isinstance(error, Exception):
            self._events.call_failed.emit(f"backward raised {type(error).__name__}")
        if self._budget.explains:
            self._budget.explained += 1
            self._events.failure_found.emit(self._counted.step)
            self._counted.failed(*call, error)

    def _gave_nonfinite(self, quick: bool) -> bool:
        """Return whether a call of a fast-path step gave a non-finite gradient to a sampled leaf.

        The farthest leaf is checked; in every fourth call, one of the others in turn. See Note [Cold code].

        :param quick: no mode and no profiler of the user is on.
        """
        begin = _clock() if self._turn % TIMED_CHECK_INTERVAL == 0 else 0.0
        try:
            self._turn += 1
            refs, bad = self._counted.far, False
            if refs:
                others = self._turn // 4 % (len(refs) - 1) if len(refs) > 1 and self._turn % 4 == 0 else -1
                leaf = refs[others + 1]()
                grad: Any = leaf.grad if leaf is not None else None
                if not quick or type(grad) is not torch.Tensor or not grad.is_cpu or grad.requires_grad:
                    bad = _state([grad]) is NONFINITE
                else:
                    total = grad.sum().item()
                    bad = total - total != 0.0 and _state([grad]) is NONFINITE
        except Exception as error:
            self._events.fault(self, error)
            return False
        if begin:  # a check that was interrupted does not represent the others
            taken = _clock() - begin
            self._each = min(taken, 2 * self._each) if self._each else taken
        self._own.clocked += self._each
        return bad

    def _gave_bad(self, roots: object, args: object, kwargs: object, frame: FrameType) -> None:
        call = call_of(roots, args, kwargs, frame)
        if call.kind != "autograd.grad" and self._last is not NONFINITE and self._is_alarm(NONFINITE):
            self._alarms[NONFINITE] += 1
            self._last = NONFINITE
            self.settle()
            self._events.failure_found.emit(self._counted.step)
            self._events.call_failed.emit(BAD_GRADIENT)
            self._counted.gave_bad(*call)

    def _ended(self, call: Call) -> None:
        counted = self._counted
        state = self._state_now() if call.kind != "autograd.grad" else self._last
        if state is not self._last:
            # Gradients that are missing or zero now: the next steps show why.
            if self._is_alarm(state):
                self._alarms[state] += 1
                self._events.failure_found.emit(counted.step)
                if state is NONFINITE:
                    self._events.call_failed.emit(BAD_GRADIENT)
                    counted.gave_bad(*call)
            self._last = state
        counted.over(call.kind, call.arguments)
        self._events.outermost_call_ended.emit()

    def _is_alarm(self, state: str) -> bool:
        """Return whether gradients in this `state` justify a closer inspection.

        A loss that is only counted does not justify one.
        """
        return state is not HEALTHY and self._alarms[state] < MAX_GRADIENT_ALARMS and not self._budget.only_counts

    def _state_now(self) -> str:
        """Return the health of the farthest leaf and of one of the others in turn.

        If it changed, all sampled leaves are checked.
        """
        leaves = self._counted.witnesses
        sampled = self._sampled(leaves)
        self._check_later([leaf.grad for leaf in sampled])
        state = _state([leaf.grad for leaf in sampled])
        return state if state is self._last else _state([leaf.grad for leaf in leaves])

    def _sampled(self, leaves: list[torch.Tensor]) -> list[Any]:
        """Return the farthest leaf, and one of the others in turn."""
        self._turn += 1
        return [leaves[0], leaves[1 + self._turn % (len(leaves) - 1)]] if len(leaves) > 2 else leaves

    def _check_later(self, grads: Sequence[torch.Tensor | None]) -> None:
        """Check gradients on an accelerator without waiting for it."""
        away = [grad for grad in grads if grad is not None and not grad.is_cpu and private.is_plain(grad)]
        away = [grad.detach() for grad in away if grad.is_floating_point() and not private.hands_off(grad)]
        if away:
            with torch.no_grad():
                self._later.add(torch.stack(torch._foreach_norm(away, math.inf)).sum(), self._accelerator_checked)

    def _accelerator_checked(self, most: float) -> None:
        state = NONFINITE if most - most != 0.0 else HEALTHY if most else MISSING
        if state is not self._accelerator_state and self._is_alarm(state):
            self._alarms[state] += 1
            self._events.failure_found.emit(self._counted.step)
        self._accelerator_state = state


def call_of(roots: Any, args: Any, kwargs: Any, frame: Any) -> Call:
    """Return the call that `frame` made, from the arguments of the engine's function."""
    adds, arguments = arguments_of(args, kwargs)
    return Call(_kind(adds, frame), as_list(roots), arguments, frame)


def _kind(adds: bool, frame: FrameType) -> str:
    """Return the name of the function that the user called."""
    if not adds:
        return "autograd.grad"
    below = frame.f_back
    above = below.f_back if below is not None else None
    by_tensor = above is not None and above.f_code is code_objects.TENSOR_BACKWARD
    return "Tensor.backward" if by_tensor else "autograd.backward"


def _state(grads: Sequence[torch.Tensor | None]) -> str:
    """Return the health of gradients.

    It is ``NONFINITE`` if one is non-finite, ``MISSING`` if one is missing or zero, and ``HEALTHY`` otherwise. A
    dispatch mode of the user does not see the check.
    """
    if private.in_mode():
        with private.undispatched():
            states = [_state_of(grad) for grad in grads if grad is None or private.is_plain(grad)]
    else:
        states = [_state_of(grad) for grad in grads]
    return NONFINITE if NONFINITE in states else MISSING if MISSING in states else HEALTHY


def _state_of(grad: Any) -> str:
    if grad is None:
        return MISSING
    grad = private.local(grad)
    if grad is None:
        return HEALTHY
    if not grad.is_cpu or grad.layout is not torch.strided or not grad.is_floating_point():
        return HEALTHY
    plain = grad.detach() if grad.requires_grad else grad  # with create_graph it has a graph
    total = plain.sum().item()
    if total - total != 0.0:
        return HEALTHY if plain.isfinite().all() else NONFINITE
    return HEALTHY if total or plain.any() else MISSING
