"""Intercepts backward calls of steps whose nodes are not recorded.

Note [Steps that are not recorded]: no mode of ours is on in these steps, and modules have no hooks. Calls reach us
through the engine's function (Note [In place of the engine's function]). A loss that is not finite is detected before
the call, while its graph has all saved tensors: the call is then recorded as in any other step. If a call raises, its
graph still exists afterwards, and shows which nodes have run. Lines and modules come from a recorded step that made the
same nodes (``Layouts.infer_lines``). Gradients that are not finite are detected when the call is over, on a few leaves:
the farthest from the loss, which non-finite values reach from any node on the way.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
    frame: FrameType


class EngineInterceptor:
    """Receives the calls of the autograd engine in steps that are not recorded.

    :param later: fetches numbers from accelerators.
    """

    def __init__(
        self,
        sentinels: SentinelCalls,
        budget: Budget,
        events: Events,
        state: RecordingState,
        later: Later,
    ) -> None:
        """Start in a step in which all nodes may be recorded, with gradients taken to be healthy.

        :param state: knows which calls are running; an unrecorded call is marked in it.
        """
        self._steps, self._budget = sentinels.steps, budget
        self._fast_path = FastPath(sentinels.calls, sentinels.steps, budget, events)
        self._sentinels, self._events, self._own, self._state = sentinels, events, events.own, state
        self._pid, self._thread = os.getpid(), threading.get_ident()
        self._gradient_health, self._alarm_counts, self._check_count = HEALTHY, {MISSING: 0, NONFINITE: 0}, 0
        #: The health of gradients on an accelerator, as last fetched.
        self._later, self._accelerator_health = later, HEALTHY
        #: Whether only the backward of the running step is recorded (Note [Steps that repeat]); the number of its calls
        #: that were recorded because their graph matched a known layout; and the number of its other calls.
        self.is_backward_only, self._matched_calls, self._unmatched_calls = False, 0, 0
        #: Seconds that a check of gradients takes in a fast-path step.
        self._check_seconds = 0.0

    @dynamo_passthrough
    def __call__(self, engine: Callable[..., object], roots: object, *args: object, **kwargs: object) -> object:
        """Make a call of the autograd engine and check it: quickly in the fast path, otherwise by its loss and
        sentinels.

        Stands in for torch's engine function, which is passed as `engine`. A call with a non-finite loss is recorded;
        after an error, its cause is searched for. Calls of other threads or processes, and nested ones, are only passed
        on.
        """
        state = self._state
        nested = state.in_unrecorded_call
        is_fast = bool(self._steps.fast_path_optimizers) and not nested and _get_ident() == self._thread
        is_fast = is_fast and self._fast_path.take(roots, args, kwargs)
        if not is_fast and (nested or _compiles() or _getpid() != self._pid or _get_ident() != self._thread):
            return engine(roots, *args, **kwargs)
        takes_fast_path, call, begin = is_fast, None, None
        if not is_fast:
            engine_call = roots, args, kwargs, sys._getframe(1)
            takes_fast_path = bool(self._steps.fast_path_left) and self._takes_fast_path(*engine_call)
            if not takes_fast_path:
                call, begin = self._safely(self._prepare_call, *engine_call) or (None, None)
        state.in_unrecorded_call = True
        try:
            if begin is not None:
                result = self._sentinels.calls.run_observed(begin, partial(engine, roots, *args, **kwargs))
            else:
                result = engine(roots, *args, **kwargs)
        except BaseException as error:
            if begin is None and _getpid() == self._pid:
                if is_fast:
                    engine_call = roots, args, kwargs, sys._getframe(1)
                    self._sentinels.calls.node_counts.withdraw_end(self._fast_path.counter_before)
                self._safely(self._diagnose_error, call or call_of(*engine_call), error)
            raise
        finally:
            state.in_unrecorded_call = False
        if begin is not None:
            return result
        if call is not None:
            self._safely(self._end_call, call)
        elif takes_fast_path and self._budget.checks_gradients and self._has_nonfinite_sample(is_fast):
            self._safely(self._diagnose_gradient, roots, args, kwargs, sys._getframe(1))
        if takes_fast_path and not is_fast:
            self._sentinels.calls.node_counts.end_call()
            if self._steps.fast_path_left <= 1 and self._steps.no_optimizer_seen:
                self._safely(self._events.outermost_call_ended.emit)
        return result

    def _takes_fast_path(self, roots: object, args: object, kwargs: Mapping[str, object], frame: FrameType) -> bool:
        """Take a call into account if it belongs to a fast-path step. Return whether it does: it needs no more work."""
        own, mark = self._own, None
        own.fast_path_calls.left -= 1
        if own.fast_path_calls.left <= 0:
            mark = own.mark()
        answer: bool | None = False
        try:
            self.charge_fast_path_calls()
            accumulates = bool(kwargs.get("accumulate_grad"))
            if _profiled():
                with private.hide_from_profiler(), private.disable_function_modes():
                    answer = self._sentinels.take_fast_path(roots, accumulates, frame, self._budget)
            else:
                with private.disable_function_modes():
                    answer = self._sentinels.take_fast_path(roots, accumulates, frame, self._budget)
            if answer is None:
                self._events.novelty_found.emit(self._sentinels.step)
        except Exception as error:
            self._events.fault(self, error)
        if mark is not None:
            own.often(own.fast_path_calls, mark, 0.0, False)
        return answer is not False

    def charge_fast_path_calls(self) -> None:
        """Count the calls that took the fast path since the last time, and charge their cost."""
        if self._fast_path.count:
            self._own.clocked += self._fast_path.count * self._fast_path.seconds_per_call
            self._sentinels.add_fast_path_calls(*self._fast_path.take_calls())

    def _safely(self, function: Callable[..., object], *args: object) -> Any:
        """Call `function` hidden from the user's modes and profilers. Return its result; ``None`` if it raised."""
        mark = self._own.begin()
        try:
            with private.disable_function_modes():
                if not private.profiled():
                    return function(*args)
                with private.hide_from_profiler():
                    return function(*args)
        except Exception as error:
            self._events.fault(self, error)
        finally:
            self._own.since(mark)
        return None

    def _prepare_call(
        self, roots: object, args: object, kwargs: object, frame: FrameType
    ) -> tuple[Call, Callable[[], ActiveBackward | None] | None]:
        """Check the loss of a call that is about to be made, and count the call or prepare its recording.

        Returns the call as the user made it, and a function that begins to record it, if it is to be recorded.
        """
        sentinels = self._sentinels
        self.charge_fast_path_calls()
        sentinels.begin()
        call = call_of(roots, args, kwargs, frame)
        values = sentinels.loss_values(call.roots)
        if self._is_to_diagnose(values):
            self._events.failure_found.emit(sentinels.step)
            if not private.compiles_backward():
                return call, partial(sentinels.calls.begin, *call)
            self._events.call_failed.emit("the loss is not finite")
            sentinels.count_call(call.kind, call.roots, values, frame)
            sentinels.record_nonfinite_loss(*call)
            return call, None
        if self._state.calls_to_engine and call.kind != "autograd.grad":
            sentinels.find_leaves(call.roots)
        if self.is_backward_only and not (private.mode_depth() or private.in_mode() or private.compiles_backward()):
            running = sentinels.calls.known_call(*call)
            if running is not None:
                self._matched_calls += 1
                if not sentinels.begin_backward_only(running):
                    self._events.novelty_found.emit(sentinels.step)
                return call, partial(sentinels.calls.begin_backward_only, running)
            self._unmatched_calls += 1
        if not sentinels.count_call(call.kind, call.roots, values, frame):
            self._events.novelty_found.emit(sentinels.step)
        return call, None

    @dynamo_passthrough
    def run_compiled(
        self,
        kind: str,
        roots: Sequence[Any],
        arguments: dict[str, Any],
        frame: FrameType,
        proceed: Callable[[], object],
    ) -> object:
        """Make a call whose backward is compiled as a whole.

        Its nodes get no hooks. Non-finite losses and gradients are reported as in a step that is not recorded.
        """
        call = Call(kind, roots, arguments, frame)
        self._safely(self._begin_compiled, call)
        result = proceed()
        self._safely(self._end_compiled, call)
        return result

    def _begin_compiled(self, call: Call) -> None:
        """Choose the sentinel leaves of a compiled backward call, and record its loss if that is not finite."""
        self._sentinels.find_leaves(call.roots)
        if self._is_to_diagnose(self._sentinels.loss_values(call.roots)):
            self._sentinels.record_nonfinite_loss(*call)

    def _is_to_diagnose(self, values: Sequence[float | None]) -> bool:
        """Return whether the loss `values` are not finite and their cause is to be searched for; count the loss.

        See Note [Bad losses in a row].
        """
        budget = self._budget
        if all_finite(values):
            if any(value is not None for value in values):
                budget.note_finite_loss()
            return False
        if budget.only_counts_bad_losses or not budget.may_diagnose:
            budget.count_undiagnosed_loss(self._sentinels.step)
            return False
        budget.diagnosed_failures += 1
        return True

    def _end_compiled(self, call: Call) -> None:
        """Check the sentinel gradients after a compiled backward call, and record those that just became non-finite."""
        state = self._current_health() if call.kind != "autograd.grad" else self._gradient_health
        if state is NONFINITE and self._gradient_health is not NONFINITE and self._is_alarm(state):
            self._alarm_counts[NONFINITE] += 1
            self._sentinels.record_nonfinite_gradient(*call)
        self._gradient_health = state

    def set_backward_only(self, on: bool) -> None:
        """Set whether only the backward of the next step is recorded (Note [Steps that repeat])."""
        self.is_backward_only = on

    def take_backward_only_result(self) -> bool | None:
        """Return and reset whether a call of the finished step was recorded without its forward.

        :returns: ``False`` if no graph matched a known layout; ``None`` if no call was tried.
        """
        repeated, others, self._matched_calls, self._unmatched_calls = self._matched_calls, self._unmatched_calls, 0, 0
        return bool(repeated) if repeated or others else None

    def _diagnose_error(self, call: Call, error: BaseException) -> None:
        """Search for the cause of an `error` that an unrecorded backward call raised, if the budget permits it."""
        self.charge_fast_path_calls()
        self._sentinels.steps.emit_fast_path_steps()  # optimizers that stepped since a call was counted
        if isinstance(error, Exception):
            self._events.call_failed.emit(f"backward raised {type(error).__name__}")
        if self._budget.may_diagnose:
            self._budget.diagnosed_failures += 1
            self._events.failure_found.emit(self._sentinels.step)
            self._sentinels.record_error(*call, error)

    def _has_nonfinite_sample(self, quick: bool) -> bool:
        """Return whether a sampled leaf has a non-finite gradient after a call of a fast-path step.

        The farthest leaf is checked; in every fourth call, one of the others in turn. See Note [Cold code].

        :param quick: no mode and no profiler of the user is on.
        """
        begin = _clock() if self._check_count % TIMED_CHECK_INTERVAL == 0 else 0.0
        try:
            self._check_count += 1
            refs, bad = self._sentinels.sentinel_refs, False
            if refs:
                others = (
                    self._check_count // 4 % (len(refs) - 1) if len(refs) > 1 and self._check_count % 4 == 0 else -1
                )
                leaf = refs[others + 1]()
                grad: Any = leaf.grad if leaf is not None else None
                if not quick or type(grad) is not torch.Tensor or not grad.is_cpu or grad.requires_grad:
                    bad = _health([grad]) is NONFINITE
                else:
                    total = grad.sum().item()
                    bad = total - total != 0.0 and _health([grad]) is NONFINITE
        except Exception as error:
            self._events.fault(self, error)
            return False
        if begin:  # a check that was interrupted does not represent the others
            taken = _clock() - begin
            self._check_seconds = min(taken, 2 * self._check_seconds) if self._check_seconds else taken
        self._own.clocked += self._check_seconds
        return bad

    def _diagnose_gradient(self, roots: object, args: object, kwargs: object, frame: FrameType) -> None:
        """Record a non-finite gradient that a fast-path call gave, unless the call before gave one too."""
        call = call_of(roots, args, kwargs, frame)
        if call.kind != "autograd.grad" and self._gradient_health is not NONFINITE and self._is_alarm(NONFINITE):
            self._alarm_counts[NONFINITE] += 1
            self._gradient_health = NONFINITE
            self.charge_fast_path_calls()
            self._events.failure_found.emit(self._sentinels.step)
            self._events.call_failed.emit(BAD_GRADIENT)
            self._sentinels.record_nonfinite_gradient(*call)

    def _end_call(self, call: Call) -> None:
        """Check the sentinel gradients after an unrecorded call.

        If their health got worse, have the next steps inspected.
        """
        sentinels = self._sentinels
        state = self._current_health() if call.kind != "autograd.grad" else self._gradient_health
        if state is not self._gradient_health:
            # Gradients that are missing or zero now: the next steps show why.
            if self._is_alarm(state):
                self._alarm_counts[state] += 1
                self._events.failure_found.emit(sentinels.step)
                if state is NONFINITE:
                    self._events.call_failed.emit(BAD_GRADIENT)
                    sentinels.record_nonfinite_gradient(*call)
            self._gradient_health = state
        sentinels.end_call(call.kind, call.arguments)
        self._events.outermost_call_ended.emit()

    def _is_alarm(self, state: str) -> bool:
        """Return whether gradients in this `state` justify a closer inspection.

        A loss that is only counted does not justify one.
        """
        return (
            state is not HEALTHY
            and self._alarm_counts[state] < MAX_GRADIENT_ALARMS
            and not self._budget.only_counts_bad_losses
        )

    def _current_health(self) -> str:
        """Return the health of the gradients of the farthest leaf and of one of the others in turn.

        If it changed, all sampled leaves are checked.
        """
        leaves = self._sentinels.leaves
        sampled = self._sampled_leaves(leaves)
        self._check_accelerator_grads([leaf.grad for leaf in sampled])
        state = _health([leaf.grad for leaf in sampled])
        return state if state is self._gradient_health else _health([leaf.grad for leaf in leaves])

    def _sampled_leaves(self, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the farthest leaf, and one of the others in turn."""
        self._check_count += 1
        return [leaves[0], leaves[1 + self._check_count % (len(leaves) - 1)]] if len(leaves) > 2 else leaves

    def _check_accelerator_grads(self, grads: Sequence[torch.Tensor | None]) -> None:
        """Start to measure gradients on an accelerator; the result arrives later, without waiting for the
        accelerator.
        """
        away = [grad for grad in grads if grad is not None and not grad.is_cpu and private.is_plain(grad)]
        away = [grad.detach() for grad in away if grad.is_floating_point() and not private.is_unsafe_to_read(grad)]
        if away:
            with torch.no_grad():
                self._later.add(torch.stack(torch._foreach_norm(away, math.inf)).sum(), self._receive_accelerator_norm)

    def _receive_accelerator_norm(self, most: float) -> None:
        """Take the largest sentinel gradient of an earlier call from an accelerator, and raise an alarm if its health
        got worse.
        """
        state = NONFINITE if most - most != 0.0 else HEALTHY if most else MISSING
        if state is not self._accelerator_health and self._is_alarm(state):
            self._alarm_counts[state] += 1
            self._events.failure_found.emit(self._sentinels.step)
        self._accelerator_health = state


def call_of(roots: object, args: Any, kwargs: Any, frame: FrameType) -> Call:
    """Return the backward call that `frame` made, from the arguments of the engine's function."""
    accumulates, arguments = arguments_of(args, kwargs)
    return Call(_kind(accumulates, frame), as_list(roots), arguments, frame)


def _kind(accumulates: bool, frame: FrameType) -> str:
    """Return the name of the function that the user called: ``autograd.grad``, ``Tensor.backward`` or
    ``autograd.backward``.
    """
    if not accumulates:
        return "autograd.grad"
    below = frame.f_back
    above = below.f_back if below is not None else None
    by_tensor = above is not None and above.f_code is code_objects.TENSOR_BACKWARD
    return "Tensor.backward" if by_tensor else "autograd.backward"


def _health(grads: Sequence[torch.Tensor | None]) -> str:
    """Return the health of gradients.

    It is ``NONFINITE`` if one is non-finite, ``MISSING`` if one is missing or zero, and ``HEALTHY`` otherwise. A
    dispatch mode of the user does not see the check.
    """
    if private.in_mode():
        with private.hide_from_dispatch_modes():
            states = [_health_of(grad) for grad in grads if grad is None or private.is_plain(grad)]
    else:
        states = [_health_of(grad) for grad in grads]
    return NONFINITE if NONFINITE in states else MISSING if MISSING in states else HEALTHY


def _health_of(grad: Any) -> str:
    """Return the health of one gradient; ``HEALTHY`` if it cannot be read at once, as on an accelerator."""
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
