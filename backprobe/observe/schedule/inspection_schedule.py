"""Requests inspected and recorded steps: the first steps, the steps after a failure, and a few later ones.

``StepPolicy.plan`` makes the decision.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .budget import Budget
from .settings import Settings

if TYPE_CHECKING:
    from ..backward.pending_call_record import PendingCallRecord

#: Backward calls in a row with bad values that are inspected closely.
MAX_INSPECTED_BAD_CALLS = 3
#: The first step that is inspected closely although the start is over and nothing is wrong; the next such steps are
#: each about twice as far on. A problem that begins late is found by the time that the run is twice as long, at a cost
#: that falls with each inspection. If the budget cannot pay for one, it comes later.
FIRST_PERIODIC_INSPECTION = 32
#: Steps that are inspected closely after one in which something is new; and how many steps later one more is recorded,
#: to see whether the change persists.
STEPS_AFTER_NOVELTY, FOLLOW_UP_STEPS = 3, (4, 8, 16, 32)


class InspectionSchedule:
    """The steps that are to be inspected closely or recorded, whether or not the budget would choose them."""

    def __init__(self, inspected_steps: int) -> None:
        """Request the first `inspected_steps` steps."""
        #: Steps before this one are inspected closely.
        self._inspected_before = inspected_steps
        #: From this step on, the next step is inspected closely although nothing is wrong.
        self._periodic_from = FIRST_PERIODIC_INSPECTION
        #: From each of these steps on, one more step is recorded because something was new.
        self._follow_ups: list[int] = []
        #: Whether this schedule requested the running step, and its forward is recorded.
        self.requested = False
        #: Backward calls in a row with bad values.
        self._bad_calls_in_a_row = 0

    @property
    def has_only_bad_values(self) -> bool:
        """Return whether more than ``MAX_INSPECTED_BAD_CALLS`` calls in a row had bad values.

        Close inspection, which is slow, is not worthwhile then.
        """
        return self._bad_calls_in_a_row > MAX_INSPECTED_BAD_CALLS

    def inspect_until(self, until: int) -> None:
        """Inspect the steps before `until` closely."""
        self._inspected_before = max(self._inspected_before, until)

    def inspect_after(self, step: int) -> None:
        """Request inspection of the steps after `step`, and a record of a few later ones.

        Called if `step`, which is not recorded, is new in some way, or failed.
        """
        self.inspect_until(step + 1 + STEPS_AFTER_NOVELTY)
        follow_ups = {step + STEPS_AFTER_NOVELTY + later for later in FOLLOW_UP_STEPS}
        self._follow_ups = sorted({*self._follow_ups, *follow_ups})[: 2 * len(FOLLOW_UP_STEPS)]

    @property
    def _next_requested_step(self) -> int:
        """Return the first step that a periodic inspection or a follow-up requests."""
        return min([self._periodic_from, *self._follow_ups[:1]])

    def wants_record(self, step: int, settings: Settings, budget: Budget) -> bool:
        """Return whether to record the nodes of `step`, by request of this schedule or by choice of the budget."""
        requested = not budget.only_counts_bad_losses and (
            step < self._inspected_before or (step >= self._next_requested_step and budget.covers_requests)
        )
        return settings.traced(step) and (requested or budget.wants_record())

    def has_no_request(self, step: int) -> bool:
        """Return whether this schedule does not request `step`."""
        return self._inspected_before <= step < self._next_requested_step

    def steps_until_request(self, step: int, budget: Budget) -> int:
        """Return the number of steps from `step` on before the next requested step.

        It is ``sys.maxsize`` if none is ahead, or if the budget cannot cover one.
        """
        return (
            self._next_requested_step - step
            if budget.covers_requests and self._next_requested_step > step
            else sys.maxsize
        )

    def begin_step(self, step: int, settings: Settings, forward_recorded: bool) -> bool:
        """Begin `step`: set `requested`, remove the requests that it fulfils, and return whether it is inspected.

        :param forward_recorded: the forward of the step is recorded; otherwise the step fulfils no request.
        """
        inspecting = forward_recorded and (
            settings.level == "full" or step < self._inspected_before or step >= self._periodic_from
        )
        self.requested = forward_recorded and (inspecting or step >= self._next_requested_step)
        if self.requested and self._follow_ups and step >= self._follow_ups[0]:
            del self._follow_ups[0]
        if inspecting and step >= self._periodic_from:
            self._periodic_from = 1 << step.bit_length()
        return inspecting

    def backward_recorded(self, running: object, recorded: PendingCallRecord) -> None:
        """Update the schedule after a recorded call."""
        self._bad_calls_in_a_row = self._bad_calls_in_a_row + 1 if recorded.has_trouble else 0
        if recorded.has_trouble:
            self._inspected_before = 0 if self.has_only_bad_values else max(self._inspected_before, recorded.step + 2)
