"""Decides, before each step, how closely it is observed.

Note [Detail of a step]: a step is inspected (every value and gradient is measured at once), recorded (every node), or
checked by sentinels (the loss, a few gradients, and errors). ``StepPolicy.plan`` is the only place that decides; a
``StepPlan`` holds the decision, and ``StepController`` carries it out. The decision depends on what the user asks for
(``Settings``), on the allowed overhead (``Budget``), and on failures and novelty in earlier steps
(``InspectionSchedule``, and the rules here).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from .budget import Budget
from .inspection_schedule import STEPS_AFTER_NOVELTY, InspectionSchedule
from .settings import Settings

if TYPE_CHECKING:
    from ..backward.pending_call_record import PendingCallRecord

#: Novelty (a line that runs for the first time, or a graph of another size) makes the next steps be inspected closely.
#: This happens up to ``MAX_NOVELTY_INSPECTIONS`` times without a condition; after that only if the run is
#: ``NOVELTY_GROWTH`` times as long as at the last time.
MAX_NOVELTY_INSPECTIONS, NOVELTY_GROWTH = 16, 1.25


class Detail(IntEnum):
    """How much of a step is observed: Note [Detail of a step]."""

    SENTINEL = 0
    RECORD = 1
    INSPECT = 2


@dataclass(frozen=True)
class StepPlan:
    """How a step is observed.

    :ivar backward_only: the nodes are recorded without observing the forward (Note [Steps that repeat]).
    :ivar attached: the recorder and the module hooks are attached, though perhaps only to learn the modules.
    :ivar calls_to_engine: the interceptor of the engine handles backward calls, even if everything is attached.
    :ivar diagnoses: the step is inspected because a failure in an earlier one is to be explained.
    """

    step: int
    detail: Detail
    backward_only: bool = False
    attached: bool = False
    calls_to_engine: bool = False
    diagnoses: bool = False

    @property
    def recorded(self) -> bool:
        """Return whether the nodes of the step are recorded."""
        return self.detail >= Detail.RECORD

    @property
    def forward_recorded(self) -> bool:
        """Return whether the forward is recorded, too."""
        return self.recorded and not self.backward_only

    @property
    def inspected(self) -> bool:
        """Return whether every value and gradient is measured at once."""
        return self.detail is Detail.INSPECT


class StepPolicy:
    """Decides how closely each step is observed."""

    def __init__(self, settings: Settings) -> None:
        """Make the budget and the schedule of inspections that the settings ask for."""
        self.settings = settings
        self.budget = Budget(settings.budget, settings.level != "minimal")
        self.inspections = InspectionSchedule(settings.inspected_steps)
        self._may_skip_forward = settings.budget is not None and settings.plain
        #: Whether the next step is recorded, if that was decided before the current step is over.
        self._decided_ahead: bool | None = None
        #: Steps before this one that are inspected are inspected because a failure is to be explained.
        self._diagnoses_until = 0
        #: How many times novelty started an inspection, and the step of the last one.
        self._novelty_inspections = self._last_novelty_step = 0
        #: Something new was found while the budget did not cover an inspection.
        self._has_postponed_inspection = False

    @property
    def omits_steps(self) -> bool:
        """Return whether there may be steps that are not recorded."""
        asked = self.settings
        some = asked.level == "minimal" or asked.every > 1 or asked.first > 0 or asked.last is not None
        return some or asked.budget is not None

    def is_at_start(self, step: int) -> bool:
        """Return whether `step` is one of the first: they are inspected, and the modules are learnt from them."""
        return step < self.settings.inspected_steps

    def plan(self, step: int, can_record: Callable[[], bool], can_skip_forward: bool) -> StepPlan:
        """Return the plan for `step`, which begins now.

        :param can_record: whether everything can be attached now; it is only asked if the step is to be recorded.
        :param can_skip_forward: whether the next graph may be one of the last ones (Note [Steps that repeat]).
        """
        recorded = self._wants_record(step) if self._decided_ahead is None else self._decided_ahead
        self._decided_ahead = None
        recorded = recorded and can_record()
        self.budget.can_record_backward_only = self._may_skip_forward and can_skip_forward
        repeats = recorded and self.budget.next_is_backward_only and self.inspections.has_no_request(step)
        inspected = self.inspections.begin_step(step, self.settings, recorded and not repeats)
        return StepPlan(
            step,
            Detail.INSPECT if inspected else Detail.RECORD if recorded else Detail.SENTINEL,
            backward_only=repeats,
            attached=(recorded and not repeats) or self.is_at_start(step),
            calls_to_engine=not recorded and self.settings.level == "minimal",
            diagnoses=inspected and step < self._diagnoses_until,
        )

    def decide_ahead(self, step: int) -> bool:
        """Decide now whether the next step, number `step`, is recorded; ``plan`` will keep to it."""
        self._decided_ahead = self._wants_record(step)
        return self._decided_ahead

    @property
    def is_decided_ahead(self) -> bool:
        """Return whether ``decide_ahead`` was called for the next step."""
        return self._decided_ahead is not None

    def _wants_record(self, step: int) -> bool:
        """Return whether the schedule of inspections, the settings or the budget want `step` recorded."""
        return self.inspections.wants_record(step, self.settings, self.budget)

    def fast_path_steps(self, step: int) -> int:
        """Return how many steps from `step` on may take the fast path before one is to be inspected."""
        return self.inspections.steps_until_request(step, self.budget)

    # What was seen

    def call_recorded(self, recorded: PendingCallRecord, scaled: bool) -> None:
        """Take a recorded backward call into account.

        :param scaled: a ``GradScaler`` may have made its loss non-finite.
        """
        if recorded.has_trouble:
            self._diagnoses_until = max(self._diagnoses_until, recorded.step + 1 + STEPS_AFTER_NOVELTY)
        if any(root.bad for root in recorded.roots):
            self.budget.count_diagnosed_loss(scaled)
        elif recorded.kind != "autograd.grad":
            self.budget.note_finite_loss()

    def found_novelty(self, step: int) -> bool:
        """Inspect the steps after `step`, in which something new happened, as soon as the budget covers it. Return
        whether they are inspected now. See Note [Kept for what is new].
        """
        if self._novelty_inspections >= MAX_NOVELTY_INSPECTIONS and step < NOVELTY_GROWTH * self._last_novelty_step:
            return False
        self._has_postponed_inspection = not self.budget.covers_requests
        if self._has_postponed_inspection:
            return False
        self._novelty_inspections, self._last_novelty_step = self._novelty_inspections + 1, step
        self.inspections.inspect_after(step)
        return True

    def found_postponed_novelty(self, step: int) -> bool:
        """The same, for novelty in `step` or before that the budget did not cover then."""
        return self._has_postponed_inspection and self.found_novelty(step)

    def found_late_failure(self, step: int) -> bool:
        """Inspect the steps after `step`: an earlier loss was not finite, and this is known only now. Return whether
        they are inspected.
        """
        if self._novelty_inspections >= MAX_NOVELTY_INSPECTIONS:
            return False
        self._novelty_inspections += 1
        self.inspections.inspect_after(step)
        return True
