"""Backward calls of steps whose nodes are not recorded: what is cheap to know of each, and the whole of one that goes
wrong.

Note [Steps that are not recorded]: no mode of ours is on in them, and no hook on modules. Calls reach us through the
engine's function (Note [In place of the engine's function]). A loss that is not finite is looked at before the call,
while its graph has all that it saved: the call is then recorded as in any other step. Of a call that raises, the graph
is still there afterwards: which nodes have run can be read from it. Lines and modules come from a recorded step that
made the same nodes (``Layouts.assume``). Gradients that are not finite are seen when the call is over, on a few leaves,
the farthest from the loss, where what goes wrong on the way arrives.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ...torch_internals import code_objects, private
from ...torch_internals.async_scalars import Later
from ...torch_internals.engine_calls import arguments_of
from ...torch_internals.entry_points import as_list
from ...torch_internals.uncompiled import dynamo_passthrough
from ..events import Events
from ..schedule.budget import Budget
from .calls import ActiveBackward, all_finite
from .fast_path import FastPath
from .sentinel_calls import SentinelCalls

#: How gradients are.
FINE, GONE, BAD = "fine", "gone", "bad"
#: What is said of a call that gave one.
BAD_GRADIENT = "a gradient is not finite"
#: How often gradients that are gone make the next steps be looked at closely, and those that are not finite.
ALARMS = 20
#: Of how many looks at gradients in steps that pass one is clocked.
LOOKS = 16
#: True while a region is being compiled: what is made then is traced, and not run.
_compiles = torch.compiler.is_compiling
_getpid, _get_ident, _profiled, _clock = os.getpid, threading.get_ident, private.profiled, time.perf_counter


class Call(NamedTuple):
    """A call as the user made it."""

    kind: str
    roots: Sequence[Any]
    arguments: dict[str, Any]
    frame: Any


class EngineInterceptor:
    """Hears the engine's calls.

    :param trouble: called with the number of the step in which something is wrong.
    :param surprise: called with the number of the step in which other nodes are made for a call than for those before.
    :param over: called when a call is over.
    """

    def __init__(
        self,
        counted: SentinelCalls,
        budget: Budget,
        events: Events,
        trouble: Callable[[int], None],
        surprise: Callable[[int], None],
        over: Callable[[], None],
    ) -> None:
        self._steps, self._budget = counted.steps, budget
        self._passed = FastPath(counted.calls, counted.steps, budget, events)
        self._counted, self._events, self._own, self._trouble, self._over = counted, events, events.own, trouble, over
        self._pid, self._thread = os.getpid(), threading.get_ident()
        self._last, self._alarms, self._turn, self._surprise = FINE, {GONE: 0, BAD: 0}, 0, surprise
        #: What an accelerator tells later, and what it told last of gradients.
        self.later = Later()
        self._told = FINE
        #: Whether a call is going on.
        self.inside = False
        #: Whether the backward of the running step is recorded, as far as it is known and no mode of the user's would
        #: see us (Note [Steps that repeat]); how many calls of it were, and how many were not.
        self.repeating, self.repeated, self.others = False, 0, 0
        #: Seconds that a look at gradients takes in a step that passes.
        self._each = 0.0

    @dynamo_passthrough
    def __call__(self, engine: Callable[..., Any], roots: Any, *args: Any, **kwargs: Any) -> Any:
        quick = bool(self._steps.only) and not self.inside and _get_ident() == self._thread
        quick = quick and self._passed.lets_pass(roots, args, kwargs)
        if not quick and (self.inside or _compiles() or _getpid() != self._pid or _get_ident() != self._thread):
            return engine(roots, *args, **kwargs)
        passes, call, begin = quick, None, None
        if not quick:
            given = roots, args, kwargs, sys._getframe(1)
            passes = bool(self._steps.passing) and self._passes(*given)
            if not passes:
                call, begin = self._safely(self._begins, *given) or (None, None)
        self.inside = True
        try:
            if begin is not None:
                result = self._counted.calls.watched(begin, partial(engine, roots, *args, **kwargs))
            else:
                result = engine(roots, *args, **kwargs)
        except BaseException as error:
            if begin is None and _getpid() == self._pid:
                if quick:
                    given = roots, args, kwargs, sys._getframe(1)
                    self._counted.calls.between.over_at = self._passed.base  # this one is not over
                self._safely(self._raised, call or call_of(*given), error)
            raise
        finally:
            self.inside = False
        if begin is not None:
            return result
        if call is not None:
            self._safely(self._ended, call)
        elif passes and self._budget.peeks and self._is_spoilt(quick):
            self._safely(self._gave_bad, roots, args, kwargs, sys._getframe(1))
        if passes and not quick:
            self._counted.calls.between.over()
            if self._steps.passing <= 1 and self._steps.alone:
                self._safely(self._over)
        return result

    def _passes(self, roots: Any, args: Any, kwargs: Any, frame: Any) -> bool:
        """Whether a call is about to be made of a step that passes."""
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
                self._surprise(self._counted.step)
        except Exception as error:
            self._events.fault(self, error)
        if mark is not None:
            own.often(own.passes, mark, 0.0, False)
        return answer is not False

    def settle(self) -> None:
        """What was put off while steps passed."""
        if self._passed.count:
            self._own.clocked += self._passed.count * self._passed.seconds
            self._counted.have_passed(*self._passed.take())

    def _safely(self, look: Callable[..., Any], *given: Any) -> Any:
        """What `look` gives, which no mode or profiler of the user's sees; ``None`` where it fails."""
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
        self, roots: Any, args: Any, kwargs: Any, frame: Any
    ) -> tuple[Call, Callable[[], ActiveBackward | None] | None]:
        """A call is about to be made: as the user made it, and what begins to watch it, where that is done after
        all."""
        counted = self._counted
        self.settle()
        counted.begins()
        call = call_of(roots, args, kwargs, frame)
        values = counted.values(call.roots)
        if self._explains(values):
            self._trouble(counted.step)
            if not private.compiles_backward():
                return call, partial(counted.calls.begin, *call)
            self._events.tell("call_spoilt", "the loss is not finite")
            counted.is_usual(call.kind, call.roots, values, frame)
            counted.begins_bad(*call)
            return call, None
        if self.repeating and not (private.mode_depth() or private.in_mode() or private.compiles_backward()):
            running = counted.calls.repeated(*call)
            if running is not None:
                self.repeated += 1
                if not counted.repeats(running):
                    self._surprise(counted.step)
                return call, partial(counted.calls.begin_repeated, running)
            self.others += 1
        if not counted.is_usual(call.kind, call.roots, values, frame):
            self._surprise(counted.step)
        return call, None

    @dynamo_passthrough
    def in_one(self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any, proceed: Any) -> Any:
        """A call whose backward is compiled as a whole: nothing is put on its nodes, and what goes wrong in it is told
        as in a step that is not recorded."""
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
        """Whether a loss with these values is not finite, and is to be explained: Note [Bad losses in a row]."""
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
        if state is BAD and self._last is not BAD and self._tells_of(state):
            self._alarms[BAD] += 1
            self._counted.gave_bad(*call)
        self._last = state

    def have_repeated(self) -> bool | None:
        """Whether calls of the step that is over were recorded as repeating one before; ``None`` where none was to, or
        there was none."""
        repeated, others, self.repeated, self.others = self.repeated, self.others, 0, 0
        return bool(repeated) if repeated or others else None

    def _raised(self, call: Call, error: BaseException) -> None:
        self.settle()
        self._counted.steps.tell_passed()  # optimizers that stepped since a call was counted
        if isinstance(error, Exception):
            self._events.tell("call_spoilt", f"backward raised {type(error).__name__}")
        if self._budget.explains:
            self._budget.explained += 1
            self._trouble(self._counted.step)
            self._counted.failed(*call, error)

    def _is_spoilt(self, quick: bool) -> bool:
        """Whether a call of a step that passes gave a gradient that is not finite to the farthest leaf, or, in one of
        four, to one of the others in turn. Note [Cold code].

        :param quick: no mode and no profiler of the user's is on.
        """
        begin = _clock() if self._turn % LOOKS == 0 else 0.0
        try:
            self._turn += 1
            refs, bad = self._counted.far, False
            if refs:
                others = self._turn // 4 % (len(refs) - 1) if len(refs) > 1 and self._turn % 4 == 0 else -1
                leaf = refs[others + 1]()
                grad: Any = leaf.grad if leaf is not None else None
                if not quick or type(grad) is not torch.Tensor or not grad.is_cpu or grad.requires_grad:
                    bad = _state([grad]) is BAD
                else:
                    total = grad.sum().item()
                    bad = total - total != 0.0 and _state([grad]) is BAD
        except Exception as error:
            self._events.fault(self, error)
            return False
        if begin:  # one that was interrupted stands for no others
            taken = _clock() - begin
            self._each = min(taken, 2 * self._each) if self._each else taken
        self._own.clocked += self._each
        return bad

    def _gave_bad(self, roots: Any, args: Any, kwargs: Any, frame: Any) -> None:
        call = call_of(roots, args, kwargs, frame)
        if call.kind != "autograd.grad" and self._last is not BAD and self._tells_of(BAD):
            self._alarms[BAD] += 1
            self._last = BAD
            self.settle()
            self._trouble(self._counted.step)
            self._events.tell("call_spoilt", BAD_GRADIENT)
            self._counted.gave_bad(*call)

    def _ended(self, call: Call) -> None:
        counted = self._counted
        state = self._state_now() if call.kind != "autograd.grad" else self._last
        if state is not self._last:
            # Gradients that are no longer there, or zero: the next steps tell why.
            if self._tells_of(state):
                self._alarms[state] += 1
                self._trouble(counted.step)
                if state is BAD:
                    self._events.tell("call_spoilt", BAD_GRADIENT)
                    counted.gave_bad(*call)
            self._last = state
        counted.over(call.kind, call.arguments)
        self._over()

    def _tells_of(self, state: str) -> bool:
        """Whether gradients in this `state` are worth a closer look: not those of a loss that is only counted."""
        return state is not FINE and self._alarms[state] < ALARMS and not self._budget.only_counts

    def _state_now(self) -> str:
        """Of the farthest leaf, and of one of the others in turn; of all where that is not as it was."""
        leaves = self._counted.witnesses
        some = self._some(leaves)
        self._ask_later([leaf.grad for leaf in some])
        state = _state([leaf.grad for leaf in some])
        return state if state is self._last else _state([leaf.grad for leaf in leaves])

    def _some(self, leaves: list[Any]) -> list[Any]:
        """The farthest leaf, and one of the others in turn."""
        self._turn += 1
        return [leaves[0], leaves[1 + self._turn % (len(leaves) - 1)]] if len(leaves) > 2 else leaves

    def _ask_later(self, grads: Sequence[Any]) -> None:
        """What an accelerator is not waited for."""
        away = [grad for grad in grads if grad is not None and not grad.is_cpu and private.is_plain(grad)]
        away = [grad.detach() for grad in away if grad.is_floating_point() and not private.hands_off(grad)]
        if away:
            with torch.no_grad():
                self.later.add(torch.stack(torch._foreach_norm(away, math.inf)).sum(), self._gradients_were)

    def _gradients_were(self, most: float) -> None:
        state = BAD if most - most != 0.0 else FINE if most else GONE
        if state is not self._told and self._tells_of(state):
            self._alarms[state] += 1
            self._trouble(self._counted.step)
        self._told = state


def call_of(roots: Any, args: Any, kwargs: Any, frame: Any) -> Call:
    """From what the engine's function is called with by `frame`."""
    adds, arguments = arguments_of(args, kwargs)
    return Call(_kind(adds, frame), as_list(roots), arguments, frame)


def _kind(adds: bool, frame: Any) -> str:
    """What the user called."""
    if not adds:
        return "autograd.grad"
    below = frame.f_back
    above = below.f_back if below is not None else None
    by_tensor = above is not None and above.f_code is code_objects.TENSOR_BACKWARD
    return "Tensor.backward" if by_tensor else "autograd.backward"


def _state(grads: Sequence[Any]) -> str:
    """How gradients are: one is not finite, all are there and not zero, or some are not. A dispatch mode of the user's
    sees nothing of it."""
    if private.in_mode():
        with private.undispatched():
            states = [_state_of(grad) for grad in grads if grad is None or private.is_plain(grad)]
    else:
        states = [_state_of(grad) for grad in grads]
    return BAD if BAD in states else GONE if GONE in states else FINE


def _state_of(grad: Any) -> str:
    if grad is None:
        return GONE
    grad = private.local(grad)
    if grad is None:
        return FINE
    if not grad.is_cpu or grad.layout is not torch.strided or not grad.is_floating_point():
        return FINE
    plain = grad.detach() if grad.requires_grad else grad  # with create_graph it has a graph
    total = plain.sum().item()
    if total - total != 0.0:
        return FINE if plain.isfinite().all() else BAD
    return FINE if total or plain.any() else GONE
