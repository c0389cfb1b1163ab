"""How long the parts of a recorded step take: what comes before the forward, forward, backward, and optimizer.

Only steps whose nodes are recorded, and that are not inspected closely, are timed: elsewhere it is not known when the
forward begins, or observing takes many times what the step itself does. Backprobe's own time is an estimate; a step of
which it takes the largest part is left out. Times are the host's: work that an accelerator does later counts where the
script waits for it.
"""

from __future__ import annotations

import time

import torch

from ... import thresholds
from ...records import Step, StepPhases
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of steps whose times are kept: if there are more, every second one is dropped.
MAX_STEPS = 200
#: Phases of a step, the first five as in ``StepPhases``.
BEFORE, FORWARD, BACKWARD, OPTIMIZER, REST, AFTER_OPTIMIZER = range(6)


class StepPhasesTracker(Tracker):
    """Tracker that divides the time of recorded steps among their parts, without backprobe's own time."""

    def __init__(self, context: TrackerContext) -> None:
        self._own = context.events.own
        #: Whether the running step is timed; its seconds by phase; the phase that is running, the one before a backward
        #: call, and the time and backprobe's own time when it began.
        self._is_timed = False
        self._seconds = [0.0] * 5
        self._phase = self._before_call = BEFORE
        self._began = self._own_seconds = 0.0
        #: The time when the step began, and backprobe's own time then.
        self._step_began = self._own_at_step = 0.0
        #: Seconds between an optimizer's step and the forward that has just begun: what they belong to shows when the
        #: next event comes.
        self._before_forward = 0.0
        #: Every n-th timed step is kept; how many were timed; the kept ones.
        self._interval, self._count = 1, 0
        self._kept: list[StepPhases] = []

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Begin to time the step, unless it is inspected closely.

        The forward may have begun already: it ends a step that nothing else has ended.
        """
        in_forward = self._phase == FORWARD
        self._is_timed, self._seconds = not inspecting, [0.0] * 5
        self._seconds[BEFORE], self._before_forward = self._before_forward, 0.0
        self._phase, self._began, self._own_seconds = BEFORE, time.perf_counter(), self._own.until_now
        self._step_began, self._own_at_step = self._began, self._own_seconds
        if in_forward:
            self._phase = FORWARD

    def _enter(self, phase: int) -> None:
        """End the running phase, and begin `phase`."""
        now, own = time.perf_counter(), self._own.until_now
        seconds = max(now - self._began - (own - self._own_seconds), 0.0)
        self._seconds[REST] += self._before_forward
        self._before_forward = 0.0
        if self._phase == AFTER_OPTIMIZER and phase == FORWARD:
            self._before_forward = seconds
        else:
            self._seconds[REST if self._phase == AFTER_OPTIMIZER else self._phase] += seconds
        self._phase, self._began, self._own_seconds = phase, now, own

    def forward_begins(self) -> None:
        """The forward begins with the call of an outermost module, and goes on until a backward call.

        An evaluation, with gradient mode off, is no forward of the step.
        """
        if torch.is_grad_enabled():
            self._enter(FORWARD)

    def backward_begins(self) -> None:
        """Note the phase in which a backward call is made."""
        if self._phase != BACKWARD:
            self._before_call = self._phase
            self._enter(BACKWARD)

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Go on after an outermost call: with the forward, if it only returned derivatives."""
        if running.inside is None:
            self._enter(self._before_call if running.kind == "autograd.grad" else REST)

    def optimizer_begins(self, optimizer: object) -> None:
        """An optimizer begins to step."""
        self._enter(OPTIMIZER)

    def optimizer_ended(self, optimizer: object) -> None:
        """An optimizer has stepped: what follows belongs to this step only if the step goes on."""
        self._enter(AFTER_OPTIMIZER)

    def step_ended(self, step: Step) -> None:
        """Keep the times of a step that had a forward and a backward."""
        is_timed, self._is_timed = self._is_timed, False
        if not is_timed or not (self._seconds[FORWARD] and self._seconds[BACKWARD]):
            return
        elapsed = time.perf_counter() - self._step_began
        if self._own.until_now - self._own_at_step > thresholds.STEP_PHASES_MAX_OWN_SHARE * elapsed:
            return
        if self._count % self._interval == 0:
            self._kept.append(StepPhases(step.index, *self._seconds))
        self._count += 1
        if len(self._kept) > MAX_STEPS:
            self._kept, self._interval = self._kept[::2], 2 * self._interval

    def records(self) -> tuple[StepPhases, ...]:
        """Return the times of the kept steps."""
        return tuple(self._kept)
