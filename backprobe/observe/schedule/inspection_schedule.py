"""Says which steps should be inspected closely: the first ones, those after a failure, and a few later ones.

``StepPolicy.plan`` decides.
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
    """The schedule of steps that are inspected closely, or recorded at any rate."""

    def __init__(self, inspected_steps: int) -> None:
        #: Steps before this one are inspected closely.
        self._until = inspected_steps
        #: From this step on, the next step is inspected closely although nothing is wrong.
        self._periodic_from = FIRST_PERIODIC_INSPECTION
        #: From each of these steps on, one more step is recorded because something was new.
        self._follow_ups: list[int] = []
        #: Whether the running step is recorded because of this schedule, and not because of the budget.
        self.asked = False
        #: Backward calls in a row with bad values.
        self._bad_calls_in_a_row = 0

    @property
    def used_to_it(self) -> bool:
        """Return whether values have been bad for so long that close inspection, which is slow, is not worthwhile."""
        return self._bad_calls_in_a_row > MAX_INSPECTED_BAD_CALLS

    def look_closely(self, until: int) -> None:
        """Inspect the steps before `until` closely."""
        self._until = max(self._until, until)

    def something_new(self, step: int) -> None:
        """Inspect the steps after `step` closely: something is new or wrong in it, and it is not recorded."""
        self.look_closely(step + 1 + STEPS_AFTER_NOVELTY)
        follow_ups = {step + STEPS_AFTER_NOVELTY + later for later in FOLLOW_UP_STEPS}
        self._follow_ups = sorted({*self._follow_ups, *follow_ups})[: 2 * len(FOLLOW_UP_STEPS)]

    @property
    def _due(self) -> int:
        """Return the step from which on this schedule requests a recorded step."""
        return min([self._periodic_from, *self._follow_ups[:1]])

    def wanted(self, step: int, settings: Settings, budget: Budget) -> bool:
        """Return whether the nodes of a step are to be recorded."""
        requested = not budget.only_counts and (step < self._until or (step >= self._due and budget.affords))
        return settings.traced(step) and (requested or budget.wants())

    def is_usual(self, step: int) -> bool:
        """Return whether this schedule has no special reason to record this step."""
        return self._until <= step < self._due

    def room(self, step: int, budget: Budget) -> int:
        """Return how many steps from `step` on may take the fast path.

        Then a step is requested that the budget can pay for.
        """
        return self._due - step if budget.affords and self._due > step else sys.maxsize

    def begin_step(self, step: int, settings: Settings, traced: bool) -> bool:
        """Return whether a step that begins now is inspected closely.

        :param traced: its forward is recorded.
        """
        inspecting = traced and (settings.level == "full" or step < self._until or step >= self._periodic_from)
        self.asked = traced and (inspecting or step >= self._due)
        if self.asked and self._follow_ups and step >= self._follow_ups[0]:
            del self._follow_ups[0]
        if inspecting and step >= self._periodic_from:
            self._periodic_from = 1 << step.bit_length()
        return inspecting

    def backward_recorded(self, running: object, recorded: PendingCallRecord) -> None:
        """Update the schedule after a recorded call."""
        self._bad_calls_in_a_row = self._bad_calls_in_a_row + 1 if recorded.trouble else 0
        if recorded.trouble:
            self._until = 0 if self.used_to_it else max(self._until, recorded.step + 2)
