"""The fast path: the minimal work before each call of a step that passes (Note [Steps that pass]).

Note [Cold code]: a script's step evicts our code from the processor's caches, and each line of ours takes several times
as long as in a loop of its own. So the work is as little as possible, in one function.
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
_function_modes, _hands_off, _profiled = private.mode_depth, private.is_unsafe_to_read, private.profiled
_level, _dispatch_modes, _tracing = private.transform_level, private.dispatch_modes, private.jit_tracing
#: Calls whose places are remembered.
MAX_REMEMBERED_CALLS = 64


#: Factors from the times measured here to the full cost of a call, without the check of the loss and for that check.
#: The first is large because our code is entered three more times, where the optimizer steps, and because the code
#: before us is not measured; the second because the script has to reload the caches that the check used. Both were
#: measured with a tiny loop, in alternating blocks: plain, without the check and with it.
CALL_COST_FACTOR, LOSS_COST_FACTOR = 5.5, 1.5
#: One call out of this many is timed; not the first, which follows much other work of ours. And the most that one
#: measurement counts, as a multiple of the usual cost.
TIMED_CALL_INTERVAL, MAX_COST_GROWTH = 16, 4.0
#: The position of the call among these that is emitted as a sample; and one call out of how many is emitted if steps
#: are long.
SAMPLE_AT, LONG_STEP_SAMPLE_INTERVAL = 9, 4


class FastPath:
    """Checks and collects the calls of fast-path steps, until ``take_calls`` passes them on to be counted."""

    def __init__(self, calls: BackwardCalls, steps: StepWatch, budget: Budget, events: Events) -> None:
        """Start with no calls."""
        self._calls, self._node_counts = calls, calls.node_counts
        self._steps, self._budget, self._events = steps, budget, events
        #: Their number, and the node counter at the end of the call before the last.
        self.count, self.counter_before = 0, 0
        #: The number of all such calls, by which those to be timed or sampled are picked.
        self._total = 0
        #: The seconds that each call costs.
        self.seconds_per_call = 0.0
        #: For each of the last calls: the step, the node counters before and after it, and the place.
        self._latest: deque[tuple[int, int, int, CodeType, int]] = deque(maxlen=MAX_REMEMBERED_CALLS)

    def take(self, roots: Any, args: Any, kwargs: Any) -> bool:
        """Let a call from `roots` take the fast path if nothing about it is unusual; return whether it does.

        The graph must have a known number of nodes, and a loss on the CPU must be finite. `args`, `kwargs`: of the
        engine.
        """
        node_counts, now, begin, budget = self._node_counts, _next(), None, self._budget
        steps, accumulates, value = self._steps, kwargs.get("accumulate_grad", False), None
        if self._total % TIMED_CALL_INTERVAL == 1:
            begin, end = (_ran(), _clock()), 0.0
        try:
            if now - node_counts.last_end not in node_counts.known_counts or len(roots) != 1:
                return False
            if args[2]:  # create_graph
                return False
            root = roots[0]
            if type(root) is not _Tensor or _function_modes() or _profiled():
                return False
            if root.is_cpu:
                if _level() is not None or _dispatch_modes() or _tracing() is not None:
                    return False
                value = root.item()
                if value - value != 0.0:
                    if not budget.only_counts_bad_losses:
                        return False
                    budget.count_undiagnosed_loss(steps.index)
                elif budget.only_counts_bad_losses:
                    budget.note_finite_loss()
            elif _hands_off(root):
                return False
            if accumulates and steps.defers_records and not steps.calls_left:
                return False
            frame: Any = _frame(4)  # above us: the interceptor, the engine's replacement, ``autograd.backward``
            if frame.f_code is code_objects.TENSOR_BACKWARD:
                frame = frame.f_back
            self._latest.append((steps.index, node_counts.last_end, now, frame.f_code, frame.f_lasti))
            if self._total % TIMED_CALL_INTERVAL == SAMPLE_AT or (
                budget.long_steps and self._total % LONG_STEP_SAMPLE_INTERVAL == 0
            ):
                self._emit_sample(root)
            if steps.defers_records:
                steps.calls_left -= accumulates
                noted = steps.losses.noted_loss(value, roots) if accumulates else NotedLoss()
                steps.noted_calls.append((steps.index, self._calls.count + self.count, noted))
            if begin is not None:
                end = _clock()
        except Exception as error:
            if not isinstance(error, RuntimeError):  # the value is no number
                self._events.fault(self, error)
            return False
        steps.has_fast_path_call = True
        self.count += 1
        self._total += 1
        self.counter_before, node_counts.last_end = node_counts.last_end, now
        if begin is not None:
            self._update_cost(begin, end)
        return True

    def _emit_sample(self, root: object) -> None:
        """Emit ``root_sampled`` for a call that is about to be made, and count the time as ours."""
        begin = _clock()
        self._events.root_sampled.emit(root)
        self._events.own.clocked += _clock() - begin

    def _update_cost(self, begin: tuple[float, ...], end: float) -> None:
        """Update the cost of a call from a timed call.

        The call began at `begin`, and its check of the loss ended at `end`. Time that other threads used is not
        counted.
        """
        here = min(_clock() - begin[1], _ran() - begin[0])
        look = min(end - begin[1], here)
        taken, usual = CALL_COST_FACTOR * (here - look) + LOSS_COST_FACTOR * look, self.seconds_per_call
        self.seconds_per_call = usual + 0.2 * (min(taken, MAX_COST_GROWTH * usual) - usual) if usual else taken

    def take_calls(self) -> tuple[int, list[tuple[int, int, int, CodeLocation]]]:
        """Return and reset the number of calls that took the fast path.

        For the latest of them, also return their steps, the node counters between which their graphs were made, and
        their places.
        """
        count, self.count = self.count, 0
        latest = [(step, base, now, (code, at)) for step, base, now, code, at in self._latest]
        self._latest.clear()
        self._node_counts.add_ends([now for _, _, now, _ in latest])
        return count, latest
