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

from ...source.frames import Spot
from ...torchside import places, private
from ..events import Events
from ..schedule.budget import Budget
from .between import Between

_Tensor, _frame, _next, _clock = torch.Tensor, sys._getframe, private.next_sequence_nr, time.perf_counter
_function_modes, _hands_off, _profiled = private.mode_depth, private.hands_off, private.profiled
#: Calls whose places are remembered.
LATEST = 64


#: What such a call takes in all, of what is measured here: ours is entered twice more, where the optimizer steps, and
#: what stands before us is not seen.
ALL = 2.5


class Passed:
    """Calls that passed, and nobody has counted yet."""

    def __init__(self, between: Between, budget: Budget, events: Events) -> None:
        self._between, self._budget, self._events = between, budget, events
        #: How many, and the seconds that each takes.
        self.count, self.seconds = 0, 0.0
        #: Of the last ones: the counter of nodes before, and after it, and the place.
        self._latest: deque[tuple[int, int, CodeType, int]] = deque(maxlen=LATEST)

    def lets_pass(self, roots: Any, args: Any) -> bool:
        """A call from `roots` is about to be made: whether there is no more to do about it. Where there may be, nothing
        has been done."""
        between, begin, now = self._between, 0.0 if self.count else _clock(), _next()
        try:
            if not self._budget.blind:
                if now - between.over_at not in between.sizes or len(roots) != 1 or args[2]:  # it makes a graph
                    return False
                root = roots[0]
                if type(root) is not _Tensor or _function_modes() or _profiled() or _hands_off(root):
                    return False
                if root.is_cpu:
                    value = root.item()
                    if value - value != 0.0:
                        return False
                frame: Any = _frame(4)  # above us: the listener, what stands for the engine, ``autograd.backward``
                if frame.f_code is places.TENSOR_BACKWARD:
                    frame = frame.f_back
                self._latest.append((between.over_at, now, frame.f_code, frame.f_lasti))
        except Exception as error:
            if not isinstance(error, RuntimeError):  # that is no number
                self._events.fault(self, error)
            return False
        self.count += 1
        between.over_at = now
        if begin:
            self.seconds = ALL * (_clock() - begin)
        return True

    def take(self) -> tuple[int, list[tuple[int, int, Spot]]]:
        """How many have passed since the last time, and of the latest the counters of nodes between which their graphs
        were made, and their places."""
        count, self.count = self.count, 0
        latest = [(base, now, (code, at)) for base, now, code, at in self._latest]
        self._latest.clear()
        self._between.have_been([now for _, now, _ in latest])
        return count, latest
