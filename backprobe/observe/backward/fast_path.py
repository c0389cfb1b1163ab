"""Calls in steps that pass (Note [Steps that pass]): the little that is done before each.

Note [Cold code]: a script's step drives our code out of the processor's caches, and each line of ours takes several
times what it takes in a loop of its own. So here is as little as can be, in one function.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from types import CodeType
from typing import Any

import torch

from ...source.frames import CodeLocation
from ...torch_internals import code_objects, private
from ..events import Events
from ..schedule.budget import Budget
from ..schedule.losses import NotedLoss
from ..schedule.steps import StepWatch
from .calls import BackwardCalls

_Tensor, _frame, _next = torch.Tensor, sys._getframe, private.next_sequence_nr
_clock, _ran = time.perf_counter, time.thread_time
_function_modes, _hands_off, _profiled = private.mode_depth, private.hands_off, private.profiled
_level, _dispatch_modes, _tracing = private.transform_level, private.dispatch_modes, private.jit_tracing
#: Calls whose places are remembered.
LATEST = 64


#: What such a call takes in all, of what is measured here without the look at the loss: ours is entered thrice more,
#: where the optimizer steps, and what stands before us is not seen. The look: the script's own work has to get the
#: caches back that it took. Both by blocks of a tiny loop in turn: plain, without a look and with one.
ALL, LOOK = 5.5, 1.5
#: Of how many calls one is measured: not the first, which comes after much else of ours. So many times what the others
#: took is as much as one counts.
SOME, FAR = 16, 4.0
#: Which of so many is shown to those who want to see some; and one of how many is where steps are long.
SHOWN, OFTEN = 9, 4


class FastPath:
    """Calls that passed, and nobody has counted yet."""

    def __init__(self, calls: BackwardCalls, steps: StepWatch, budget: Budget, events: Events) -> None:
        self._calls, self._between = calls, calls.between
        self._steps, self._budget, self._events = steps, budget, events
        #: How many, and the counter of nodes when the call before the last was over.
        self.count, self.base = 0, 0
        #: How many ever, which is what those to be measured or shown are picked by.
        self._ever = 0
        #: The seconds that each takes.
        self.seconds = 0.0
        #: Of the last ones: the step, the counter of nodes before, and after it, and the place.
        self._latest: deque[tuple[int, int, int, CodeType, int]] = deque(maxlen=LATEST)

    def lets_pass(self, roots: Any, args: Any, kwargs: Any) -> bool:
        """A call from `roots` is about to be made: whether there is no more to do about it. Where there may be, nothing
        has been done."""
        between, now, begin, budget = self._between, _next(), None, self._budget
        steps, adds, value = self._steps, kwargs.get("accumulate_grad", False), None
        if self._ever % SOME == 1:
            begin, end = (_ran(), _clock()), 0.0
        try:
            if now - between.over_at not in between.sizes or len(roots) != 1 or args[2]:  # it makes a graph
                return False
            root = roots[0]
            if type(root) is not _Tensor or _function_modes() or _profiled():
                return False
            if root.is_cpu:
                if _level() is not None or _dispatch_modes() or _tracing() is not None:
                    return False
                value = root.item()
                if value - value != 0.0:
                    if not budget.only_counts:
                        return False
                    budget.count_bad_loss(steps.index)
                elif budget.only_counts:
                    budget.good_loss()
            elif _hands_off(root):
                return False
            if adds and steps.tells and not steps.room:
                return False
            frame: Any = _frame(4)  # above us: the listener, what stands for the engine, ``autograd.backward``
            if frame.f_code is code_objects.TENSOR_BACKWARD:
                frame = frame.f_back
            self._latest.append((steps.index, between.over_at, now, frame.f_code, frame.f_lasti))
            if self._ever % SOME == SHOWN or (steps.tells and self._ever % OFTEN == 0):
                self._show(root)
            if steps.tells:
                steps.room -= adds
                noted = steps.losses.noted(value, roots) if adds else NotedLoss()
                steps.noted.append((steps.index, self._calls.count + self.count, noted))
            if begin is not None:
                end = _clock()
        except Exception as error:
            if not isinstance(error, RuntimeError):  # that is no number
                self._events.fault(self, error)
            return False
        steps.called = True
        self.count += 1
        self._ever += 1
        self.base, between.over_at = between.over_at, now
        if begin is not None:
            self._took(begin, end)
        return True

    def _show(self, root: Any) -> None:
        begin = _clock()
        self._events.tell("root_passes", root)
        self._events.own.clocked += _clock() - begin

    def _took(self, begin: tuple[float, ...], end: float) -> None:
        """A call that is measured began at `begin`, its look at the loss ended at `end`. What others used the processor
        for meanwhile is none of it."""
        here = min(_clock() - begin[1], _ran() - begin[0])
        look = min(end - begin[1], here)
        taken, usual = ALL * (here - look) + LOOK * look, self.seconds
        self.seconds = usual + 0.2 * (min(taken, FAR * usual) - usual) if usual else taken

    def take(self) -> tuple[int, list[tuple[int, int, int, CodeLocation]]]:
        """How many have passed since the last time, and of the latest their steps, the counters of nodes between which
        their graphs were made, and their places."""
        count, self.count = self.count, 0
        latest = [(step, base, now, (code, at)) for step, base, now, code, at in self._latest]
        self._latest.clear()
        self._between.have_been([now for _, _, now, _ in latest])
        return count, latest
