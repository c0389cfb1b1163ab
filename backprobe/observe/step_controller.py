"""Begins and ends steps: carries out the plan of each step, and charges its cost to the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import Step
from .backward.active_backward import ActiveBackward
from .backward.observers import BackwardObservers
from .backward.pending_call_record import PendingCallRecord
from .forward.observers import ForwardObservers
from .instrumentation import Instrumentation
from .record_delivery import RecordDelivery
from .schedule.samples import AcceleratorClipNorm, AcceleratorNorms
from .schedule.step_policy import StepPlan
from .schedule.step_schedule import StepSchedule
from .tracker_context import TrackerContext

if TYPE_CHECKING:
    import torch


class StepController:
    """Listener that asks the policy for a plan before each step, applies it, and passes the finished step on."""

    #: The session ends if this part keeps failing.
    vital = True

    def __init__(
        self,
        schedule: StepSchedule,
        forward: ForwardObservers,
        backward: BackwardObservers,
        instrumentation: Instrumentation,
        delivery: RecordDelivery,
        context: TrackerContext,
    ) -> None:
        """Take the parts of the session that are switched on and off from step to step."""
        policy = schedule.policy
        self._policy, self._budget, self._inspections = policy, policy.budget, policy.inspections
        self._steps, self._state = schedule.steps, schedule.state
        self._scanner, self._cost = schedule.scanner, schedule.cost
        self._recorder, self._modules, self._values = forward.recorder, forward.modules, forward.values
        self._calls, self._interceptor = backward.calls, backward.interceptor
        self._instrumentation, self._delivery = instrumentation, delivery
        self._context, self._events = context, context.events

    # Steps begin

    def begin_step(self) -> None:
        """Begin the next step as the policy plans it."""
        can_skip_forward = self._calls.can_record_backward_only and not self._steps.no_optimizer_seen
        self._apply(self._policy.plan(self._steps.index, self._instrumentation.may_record, can_skip_forward))

    def _apply(self, plan: StepPlan) -> None:
        """Carry out `plan` for the step that begins: switch recorder, hooks, checks and interceptor, and emit
        ``step_begins``.
        """
        self._interceptor.set_backward_only(plan.backward_only)
        self._recorder.observe(plan.forward_recorded, plan.inspected)
        if plan.forward_recorded:
            self._recorder.skip_nodes()
        self._modules.observe(plan.forward_recorded, plan.inspected)
        self._values.set_checking(not self._inspections.has_only_bad_values)
        if plan.diagnoses:
            self._cost.charge_to_diagnosis()
        self._instrumentation.set_recording(plan.attached)
        self._instrumentation.leave_calls_to_engine(plan.calls_to_engine)
        self._steps.sample_accelerators(plan.recorded)
        if self._state.attached:
            self._events.step_begins.emit(plan.step, plan.inspected)

    def forward_begins(self) -> None:
        """End a step whose optimizer has stepped, and carry out a pending switch."""
        if self._steps.has_stepped:
            self._steps.finish()
        self._instrumentation.apply_pending_switch()

    # Steps end

    def step_finished(
        self, step: Step, losses: list[torch.Tensor], norms: list[AcceleratorNorms | AcceleratorClipNorm]
    ) -> None:
        """Account for a finished step, pass it on, begin the next one, and let steps after it take the fast path."""
        mark = self._events.own.begin()
        self._delivery.expect_numbers(step, losses, norms)
        self._charge_step(step)
        self._events.step_ended.emit(step)
        self._recorder.log.trim()
        self._modules.new_step(self._steps.index)
        self._start_postponed_inspection()
        self.begin_step()
        if not self._state.attached and self._scanner.is_due(step.index):
            self._scan(step.index, step.seconds, mark)
        else:
            self._events.own.since(mark)
        self._start_fast_path()

    def _charge_step(self, step: Step) -> None:
        """Charge a finished step to the budget, by how it was recorded."""
        recorder, repeated = self._recorder, self._interceptor.take_backward_only_result()
        if repeated is False:
            self._budget.note_unmatched_graph()
        self._budget.charge_step(
            self._cost.seconds,
            step.watching,
            recorded=recorder.recording or bool(repeated),
            inspected=recorder.inspecting,
            at_start=self._policy.is_at_start(step.index),
            requested=self._inspections.requested,
            backward_only=bool(repeated),
            diagnosed=self._cost.charged_diagnosis,
            observed=self._context.observed_steps.observes(step.index),
        )

    def _start_fast_path(self) -> None:
        """Let as many of the next steps take the fast path as budget and trackers say: Note [Steps that pass]."""
        off = not self._state.attached and not self._recorder.idle
        if not off or self._policy.is_decided_ahead or self._interceptor.is_backward_only:
            return
        begun, budget = self._steps.index, self._budget
        most = min(self._policy.fast_path_steps(begun), max(self._context.next_measured_step - begun, 0))
        room = budget.room
        most = min([most, *(limit(begun, room) for limit in self._context.fast_path_limits)])
        deferred = self._gets_deferred_records()
        if not deferred and self._steps.losses.was_just_cleared and budget.affords_deferred_records():
            return  # the next step finds out how its loss is summed up; those after it keep their losses
        several = self._context.waiting is not None
        self._steps.enter_fast_path(min(budget.next_fast_path_steps(deferred, several), most), deferred)

    def _gets_deferred_records(self) -> bool:
        """Return whether records are made of fast-path steps (Note [Brief steps])."""
        return (
            not self._policy.settings.record_ops
            and bool(self._steps.losses.summed_calls)
            and self._budget.affords_deferred_records()
        )

    def fast_path_ended(self, steps: int, seconds: float, between: bool) -> None:
        """Account for fast-path steps that are over, and pass on their records."""
        self._interceptor.charge_fast_path_calls()
        mine = self._cost.charge_steps(seconds, steps)
        self._budget.charge_fast_path_steps(steps, self._cost.seconds, mine)
        self._deliver_deferred_records(mine / steps)
        self._modules.new_step(self._steps.index)
        if between:
            self._start_postponed_inspection()
            self.begin_step()
        last = self._steps.index - 1
        if not self._state.attached and self._scanner.is_due(last):
            self._scan(last, seconds / steps, self._events.own.begin())

    def _deliver_deferred_records(self, mine: float) -> None:
        """Pass on records of fast-path steps; backprobe took `mine` seconds of each."""
        mark = self._events.own.begin()
        steps, away = self._steps.deferred_records(mine)
        if steps:
            self._delivery.brief_steps(steps, away)
        seconds = self._events.own.since(mark)
        if steps:
            self._budget.charge_deferred_records(len(steps), seconds)

    def _scan(self, step: int, seconds: float, mark: object) -> None:
        """Search for lines that ran for the first time after `step`; if there are any, have the next steps inspected.

        :param seconds: the duration of the step; `mark`: when our work on it began.
        """
        if self._scanner.scan(step, seconds, mark):
            self.novelty_found(self._steps.index)  # that step has begun already

    # Backward calls

    def outermost_call_ended(self) -> None:
        """Begin the next step here if no optimizer marks the end of a step."""
        if self._state.running_calls or not self._steps.no_optimizer_seen or self._policy.is_decided_ahead:
            return
        step = self._steps.index + 1
        recorded = self._policy.decide_ahead(step)
        if recorded and not self._recorder.recording:
            self._recorder.observe(True, False)
        self._instrumentation.set_recording(recorded or self._policy.is_at_start(step), True)

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Take a recorded call into account; if something was wrong in it, this step explains a failure."""
        self.outermost_call_ended()
        if recorded.has_trouble:
            self._cost.charge_to_diagnosis()
        self._policy.call_recorded(recorded, scaled=self._steps.losses.current_scale is not None)

    def backward_repeated(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note a call without errors."""
        self._budget.note_finite_loss()

    # Something is wrong or new in a step that is not recorded

    def failure_found(self, step: int) -> None:
        """Inspect the steps after `step`, in which something is wrong."""
        self._inspections.inspect_after(step)
        self._steps.leave_fast_path()

    def novelty_found(self, step: int) -> None:
        """Inspect the steps after `step`, in which something is new, if the policy allows it."""
        if self._policy.found_novelty(step):
            self._steps.leave_fast_path()

    def nonfinite_loss_fetched(self) -> None:
        """Inspect the next steps: the loss of an earlier step was not finite."""
        if self._policy.found_late_failure(self._steps.index):
            self._steps.leave_fast_path()

    def _start_postponed_inspection(self) -> None:
        """Start an inspection that was postponed, if the budget covers it now. Called before a step begins."""
        if self._policy.found_postponed_novelty(self._steps.index - 1):
            self._steps.leave_fast_path()
