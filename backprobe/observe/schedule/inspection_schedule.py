"""Decides which steps are inspected closely: the first ones, those after a failure, and a few later ones."""

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
CLOSE, AGAIN = 3, (4, 8, 16, 32)


class InspectionSchedule:
    """The schedule of steps that are inspected closely, or recorded at any rate."""

    def __init__(self, inspected_steps: int) -> None:
        #: Steps before this one are inspected closely.
        self._until = inspected_steps
        #: From this step on, the next step is inspected closely although nothing is wrong.
        self._seldom = FIRST_PERIODIC_INSPECTION
        #: From each of these steps on, one more step is recorded because something was new.
        self._again: list[int] = []
        #: Whether the running step is recorded because of this schedule, and not because of the budget.
        self.asked = False
        #: Backward calls in a row with bad values.
        self._troubled = 0

    @property
    def used_to_it(self) -> bool:
        """Return whether values have been bad for so long that close inspection, which is slow, is not worthwhile."""
        return self._troubled > MAX_INSPECTED_BAD_CALLS

    def look_closely(self, until: int) -> None:
        """Inspect the steps before `until` closely."""
        self._until = max(self._until, until)

    def something_new(self, step: int) -> None:
        """Inspect the steps after `step` closely: something is new or wrong in it, and it is not recorded."""
        self.look_closely(step + 1 + CLOSE)
        self._again = sorted({*self._again, *(step + CLOSE + later for later in AGAIN)})[: 2 * len(AGAIN)]

    @property
    def _due(self) -> int:
        """Return the step from which on this schedule requests a recorded step."""
        return min([self._seldom, *self._again[:1]])

    def wanted(self, step: int, settings: Settings, budget: Budget) -> bool:
        """Return whether the nodes of a step are to be recorded."""
        asked = not budget.only_counts and (step < self._until or (step >= self._due and budget.affords))
        return settings.traced(step) and (asked or budget.wants())

    def is_usual(self, step: int) -> bool:
        """Return whether this schedule has no special reason to record this step."""
        return self._until <= step < self._due

    def room(self, step: int, budget: Budget) -> int:
        """Return how many steps from `step` on may take the fast path before one is requested that the budget can pay
        for.
        """
        return self._due - step if budget.affords and self._due > step else sys.maxsize

    def begin_step(self, step: int, settings: Settings, traced: bool) -> bool:
        """Return whether a step that begins now is inspected closely.

        :param traced: its forward is recorded.
        """
        inspecting = traced and (settings.level == "full" or step < self._until or step >= self._seldom)
        self.asked = traced and (inspecting or step >= self._due)
        if self.asked and self._again and step >= self._again[0]:
            del self._again[0]
        if inspecting and step >= self._seldom:
            self._seldom = 1 << step.bit_length()
        return inspecting

    def backward_recorded(self, running: object, recorded: PendingCallRecord) -> None:
        """Update the schedule after a recorded call."""
        self._troubled = self._troubled + 1 if recorded.trouble else 0
        if recorded.trouble:
            self._until = 0 if self.used_to_it else max(self._until, recorded.step + 2)
