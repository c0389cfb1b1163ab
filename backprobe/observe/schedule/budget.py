"""Chooses the steps whose nodes are recorded, so that recording stays within the overhead budget.

Note [The budget]: the allowance grows with the script's own time: a share of it, plus ``FREE_SECONDS`` at the
start, which short runs live on. The first steps, which are closely inspected at any cost, are accounted separately. A
step whose nodes are recorded is charged when it is over; the next one is recorded as soon as the allowance covers its
cost. If a recorded step costs more than the share, only every n-th step is recorded on average. The gap between
recorded steps is randomised, so that alternating work (a critic and its generator, phases of training) is not always
sampled at the same phase. However small the budget is, one step in ``MAX_STEPS_BETWEEN_RECORDED`` is recorded.

Note [Steps that repeat]: most of the cost of a recorded step is recording what made its nodes, which is the same in
every step with the same graph. So half of the allowance is spent on steps that are recorded whole and half on steps in
which only the backward is recorded, without modes or module hooks in the forward. When the backward of such a step
begins, the graph is walked; if it equals, node by node, one recent layout, that layout's lines and modules apply. If it
matches none, or several, the step is not recorded, and for a while recorded steps are recorded whole. If all steps can
be recorded whole, all are. Steps that need the forward to be observed (checkpoints, second derivatives, tensor hooks,
compiled code) are only recorded whole.

Note [Kept for what is new]: a problem that begins late appears as something new: another number of nodes, a line that
never ran before, gradients that are missing. The steps after it are then inspected closely, which costs a multiple of a
recorded step, and some later steps are recorded. So a part (``RESERVED_FRACTION``) of the first seconds is reserved for
such steps. An inspection that the budget cannot cover is postponed, not dropped.

Note [Steps that pass]: in an unrecorded step, the loss, the calls and some gradients are still checked, and a step
record is made. If steps are so short that this takes more than ``UNRECORDED_STEP_FRACTION`` of the allowance, some take
the fast path: only what cannot be recovered later is checked (whether the loss is finite before its graph is freed, how
many nodes were made, errors raised; whether one gradient is finite, as long as that takes at most
``GRADIENT_CHECK_FRACTION``), and no record is made. These checks run at any cost: in steps shorter than a few tenths of
a millisecond they exceed the allowance. So that some steps are recorded all the same, fast-path steps are charged at
most ``FAST_PATH_CHARGE_FRACTION`` of the allowance. The number of fast-path steps in a row is randomised, too. They are
counted, and the run reports the count.

Note [Brief steps]: if the budget covers it (``DEFERRED_RECORD_FRACTION``), fast-path steps get a deferred record, made
for a whole stretch at once from the notes taken when each step ended: seconds, calls and loss. The steps of a stretch
stay in columns (``BriefSteps``) until they are read; in a run folder they are one row. So such a record costs a few
microseconds, and the budget covers it in nearly every run. A stretch takes at most ``MAX_DEFERRED_SECONDS``,
because its steps are not visible to a reader of the run until it ends.

Note [Bad losses in a row]: a run may go on for long after its loss became NaN, and each further step shows the same
problem. So under a budget, ``MAX_CONSECUTIVE_BAD_LOSSES`` backward calls in a row with a non-finite loss are explained.
Later steps are counted and their losses kept, but nothing else is recorded, until a loss is finite. A ``GradScaler``
whose factor is too large produces such losses on purpose: with a scaler, all are explained as far as the budget allows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: Seconds of our own work that any run may spend.
FREE_SECONDS = 1.0
#: The part of ``FREE_SECONDS`` that is reserved for close inspections: Note [Kept for what is new].
RESERVED_FRACTION = 0.4
#: The most steps in a row without a recorded one.
MAX_STEPS_BETWEEN_RECORDED = 1000
#: The most fast-path steps in a row; or as many as take ``MAX_FAST_PATH_SECONDS``, if those are more: the shorter a
#: step, the greater the relative cost of an ordinary one.
MAX_FAST_PATH_STEPS = 64
MAX_FAST_PATH_SECONDS = 0.1
#: The part of the allowance for unrecorded steps.
UNRECORDED_STEP_FRACTION = 0.5
#: The part of the allowance that is charged for fast-path steps, at most.
FAST_PATH_CHARGE_FRACTION = 0.7
#: The part of the allowance for ordinary unrecorded steps if fast-path steps get deferred records.
UNRECORDED_STEP_FRACTION_IF_DEFERRED = 0.1
#: The most seconds of one stretch of fast-path steps with deferred records.
MAX_DEFERRED_SECONDS = 0.5
#: The part of the allowance for deferred records: keeping a loss is worth more than recording one more step's nodes.
DEFERRED_RECORD_FRACTION = 0.5
#: The part of the allowance for steps in which trackers look at more than others do: Note [Rows of observed steps].
OBSERVED_STEP_FRACTION = 0.2
#: Seconds: steps are long if their part of the allowance is more. Then fast-path steps are checked more often.
LONG_STEP_ALLOWANCE_S = 8e-5
#: The share for unrecorded steps if no nodes are recorded and there is no budget.
SHARE_WITHOUT_BUDGET = 0.02
#: The part of the allowance up to which fast-path steps check gradients.
GRADIENT_CHECK_FRACTION = 0.8
#: Failed steps that are explained at any cost; later ones only if the budget covers it.
MAX_EXPLAINED_FAILURES = 20
#: Backward calls in a row with a non-finite loss that are explained: Note [Bad losses in a row].
MAX_CONSECUTIVE_BAD_LOSSES = 3


class StepRoom(NamedTuple):
    """The room that the next steps have for observation.

    :ivar long_steps: their part of the allowance covers more than the fast path.
    :ivar observed_share: the share of steps in which trackers may look at more than in others; infinite if unknown.
    """

    long_steps: bool
    observed_share: float = math.inf


class Budget:
    """The overhead budget, which decides for each step whether to record it.

    :param share: the allowed share of the script's own time; ``None``: record every step.
    :param nodes: whether nodes are recorded in any step.
    """

    def __init__(self, share: float | None, nodes: bool = True) -> None:
        """Start with nothing spent, and ``FREE_SECONDS`` to spend."""
        self.share, self._records_nodes = share, nodes
        #: The share of the script's time for unrecorded steps; ``None``: no bound.
        self._unrecorded_share = share if nodes or share is not None else SHARE_WITHOUT_BUDGET
        #: Seconds of the script's own work, and of ours.
        self.script_seconds = self.spent = 0.0
        #: Running mean of the cost of a step that is recorded whole, without close inspection, in seconds; ``None``
        #: before the first. And the same for a step of which only the backward is recorded.
        self.full_record_cost: float | None = None
        self.backward_only_cost: float | None = None
        #: Seconds spent on steps of both kinds since both are possible, and how many backward-only steps were recorded.
        self._spent_on_full = self._spent_on_backward_only = 0.0
        self.backward_only_steps = 0
        #: Whether the next step can be recorded without its forward, as the session reports; the step up to which
        #: steps are recorded whole, because a graph matched no known layout; and the length of that period in steps.
        self.can_record_backward_only = False
        self._full_records_until, self._full_records_period = 0, 4
        #: How many steps were recorded, and how many steps there were.
        self.recorded_steps = self.steps = 0
        #: How many fast-path steps have no record, and how many got a deferred record (Note [Brief steps]).
        self.steps_without_record = self.deferred_records = 0
        #: Decayed sums over the latest deferred records: the seconds to make them, and the number of steps.
        self._deferred_totals = 2e-3, 1000.0
        #: What is left of the seconds reserved for close inspections.
        self._reserve_s = RESERVED_FRACTION * FREE_SECONDS
        #: Running means: the seconds of a step without backprobe; the overhead of an unrecorded step that does not take
        #: the fast path; and the overhead of a fast-path step.
        self._mean_step_s = self._unrecorded_overhead_s = self._fast_path_overhead_s = 0.0
        #: The same for unrecorded steps in which trackers look at more.
        self._observed_overhead_s = 0.0
        #: Decayed sums over the latest stretches of fast-path steps: the seconds of overhead, and the number of steps.
        self._fast_path_totals = 0.0, 0.0
        #: Overhead of fast-path steps beyond ``FAST_PATH_CHARGE_FRACTION`` of the allowance, which is not charged.
        self._uncharged_s = 0.0
        #: How many failures in unrecorded steps had their cause searched for.
        self.diagnosed_failures = 0
        #: Consecutive backward calls with a non-finite loss whose cause was searched for.
        self._consecutive_bad_losses = 0
        #: Whether non-finite losses are only counted (Note [Bad losses in a row]); how many steps were counted so, and
        #: the latest of them.
        self.only_counts_bad_losses = False
        self.undiagnosed_bad_losses, self._last_undiagnosed_step = 0, -1
        #: Whether fast-path steps check gradients.
        self.checks_gradients = False
        #: Whether steps are long: then some steps are checked in more detail instead of taking the fast path.
        self.long_steps = False
        self._steps_since_full_record = 0
        #: A random factor from 1 to 2 on the price of a recorded step: it randomises the gap between recorded steps.
        self._price_factor = 1.0
        self._random_state = 2024

    def charge_step(
        self,
        seconds: float,
        overhead: float,
        recorded: bool,
        inspected: bool,
        at_start: bool = False,
        requested: bool = False,
        backward_only: bool = False,
        diagnosed: bool = False,
        observed: bool = False,
    ) -> None:
        """Charge a finished step to the budget.

        :param seconds: the duration of the step; `overhead`: the seconds of them that backprobe took.
        :param recorded: its nodes were recorded.
        :param inspected: it was inspected closely, so that its cost is not typical of a recorded step.
        :param at_start: one of the inspected steps at the start: it is counted, and its seconds are not charged.
        :param requested: recorded because the ``InspectionSchedule`` requested it, and not by choice of the budget.
        :param backward_only: recorded without its forward (Note [Steps that repeat]).
        :param diagnosed: a failure was diagnosed in it, so that its cost is not typical.
        :param observed: trackers looked at more than in other steps: Note [Rows of observed steps].
        """
        self.steps += 1
        self.recorded_steps += recorded
        self.backward_only_steps += backward_only
        if at_start:
            return
        self.script_seconds += max(seconds - overhead, 0.0)
        self.spent += overhead
        self._mean_step_s = _running_mean(self._mean_step_s, max(seconds - overhead, 0.0))
        is_typical = not recorded and not diagnosed
        if is_typical and observed:
            self._observed_overhead_s = _running_mean(self._observed_overhead_s, overhead)
        if is_typical and not (observed and self._unrecorded_overhead_s):
            # The first unrecorded step takes much longer than the others: the mean falls faster than it rises.
            before = self._unrecorded_overhead_s
            self._unrecorded_overhead_s = (
                _running_mean(before, overhead) if overhead > before else 0.5 * (before + overhead)
            )
        self._steps_since_full_record = 0 if recorded and not backward_only else self._steps_since_full_record + 1
        if recorded:
            self._price_factor = 1.0 + self._draw()
            if requested:
                self._reserve_s = max(self._reserve_s - overhead, 0.0)
            if backward_only:
                self._spent_on_backward_only += overhead
                self.backward_only_cost = _updated_cost(self.backward_only_cost, overhead)
            elif not inspected and not diagnosed:
                is_split = self.can_record_backward_only and not self._affords_only_full_records
                self._spent_on_full += overhead if is_split else 0.0
                self.full_record_cost = _updated_cost(self.full_record_cost, overhead)

    def note_unmatched_graph(self) -> None:
        """Note that a step was recorded without its forward, but its graph matches no known layout.

        The next steps are recorded whole; the number of such steps doubles each time.
        """
        self._full_records_period = min(2 * self._full_records_period, MAX_STEPS_BETWEEN_RECORDED)
        self._full_records_until = self.steps + self._full_records_period

    @property
    def next_is_backward_only(self) -> bool:
        """Return whether the next recorded step has only its backward recorded."""
        if (
            not self.can_record_backward_only
            or self._affords_only_full_records
            or self._steps_since_full_record >= MAX_STEPS_BETWEEN_RECORDED
        ):
            return False
        return self.steps >= self._full_records_until and self._spent_on_backward_only < self._spent_on_full

    @property
    def _affords_only_full_records(self) -> bool:
        """Return whether the budget covers recording every step whole, as far as costs are known."""
        if self.share is None or self.full_record_cost is None or self.spent < (1.0 - RESERVED_FRACTION) * FREE_SECONDS:
            return True
        return self.full_record_cost <= self.share * self._mean_step_s

    def wants_record(self) -> bool:
        """Return whether the next step is to be recorded: the budget covers its expected cost, or the last record is
        long ago.
        """
        if self.share is None or self._steps_since_full_record >= MAX_STEPS_BETWEEN_RECORDED:
            return True
        if self.only_counts_bad_losses:
            return False
        available, cost = self.remaining_seconds - self._reserve_s, self._next_record_cost
        return available >= self._price_factor * cost if cost else available > 0

    @property
    def _next_record_cost(self) -> float:
        """Return the expected overhead of the next step if it is recorded, in seconds; 0 if unknown."""
        return (
            self.backward_only_cost
            if self.next_is_backward_only and self.backward_only_cost is not None
            else self.full_record_cost
        ) or 0.0

    @property
    def covers_requests(self) -> bool:
        """Return whether the budget covers a step that is requested: the remaining seconds are not negative."""
        return self.remaining_seconds >= 0

    @property
    def may_diagnose(self) -> bool:
        """Return whether the cause of an error or a non-finite loss in an unrecorded step may be searched for.

        The number of such searches is limited, because a run may go on for long after its loss became NaN.
        """
        return self.diagnosed_failures < MAX_EXPLAINED_FAILURES or self.covers_requests

    def count_diagnosed_loss(self, scaled: bool) -> None:
        """Count a non-finite loss whose cause was searched for. `scaled`: a ``GradScaler`` may have caused it."""
        self._consecutive_bad_losses += 1
        self.only_counts_bad_losses = (
            self._unrecorded_share is not None
            and not scaled
            and self._consecutive_bad_losses >= MAX_CONSECUTIVE_BAD_LOSSES
        )

    def count_undiagnosed_loss(self, step: int) -> None:
        """Count the non-finite loss of `step`, whose cause is not searched for."""
        if step != self._last_undiagnosed_step:
            self.undiagnosed_bad_losses, self._last_undiagnosed_step = self.undiagnosed_bad_losses + 1, step

    def note_finite_loss(self) -> None:
        """Reset the count of consecutive non-finite losses: a loss is finite."""
        if self._consecutive_bad_losses:
            self._consecutive_bad_losses, self.only_counts_bad_losses = 0, False

    @property
    def remaining_seconds(self) -> float:
        """Return the seconds that may still be spent; infinite if there is no budget."""
        return (
            math.inf
            if self.share is None
            else FREE_SECONDS + self.share * self.script_seconds - (self.spent - self._uncharged_s)
        )

    def affords_deferred_records(self) -> bool:
        """Return whether the allowance covers deferred records of fast-path steps (Note [Brief steps])."""
        seconds, steps = self._deferred_totals
        return (
            self._unrecorded_share is not None
            and seconds <= DEFERRED_RECORD_FRACTION * self._unrecorded_share * self._mean_step_s * steps
        )

    def next_fast_path_steps(self, deferred: bool = False, multiprocess: bool = False) -> int:
        """Return how many steps take the fast path after this one, which was not recorded; set `long_steps` and
        `checks_gradients`.

        :param deferred: they get deferred records.
        :param multiprocess: the run has other processes, which need to know this one's progress soon.
        """
        if self._unrecorded_share is None or not self._unrecorded_overhead_s:
            return 0
        allowance_s = self._unrecorded_share * self._mean_step_s
        self.long_steps = allowance_s >= LONG_STEP_ALLOWANCE_S
        unrecorded_s = (UNRECORDED_STEP_FRACTION_IF_DEFERRED if deferred else UNRECORDED_STEP_FRACTION) * allowance_s
        if self._unrecorded_overhead_s <= unrecorded_s or (self.share is None and not (deferred and self.long_steps)):
            return 0  # without a budget every step gets a record, and short ones are not brief
        if (
            not deferred and self._unrecorded_overhead_s <= allowance_s and self.affords_deferred_records()
        ):  # long enough for deferred records, which keep its loss
            return 0
        self.checks_gradients = self._fast_path_overhead_s <= GRADIENT_CHECK_FRACTION * allowance_s
        room_s, step_s = unrecorded_s - self._fast_path_overhead_s, max(self._mean_step_s, 1e-6)
        if deferred:
            max_count = (MAX_FAST_PATH_SECONDS if multiprocess else MAX_DEFERRED_SECONDS) / step_s
        else:
            max_count = max(MAX_FAST_PATH_STEPS, MAX_FAST_PATH_SECONDS / step_s)
        mean_count = min(max_count, self._unrecorded_overhead_s / room_s) if room_s > 0 else max_count
        count = max(1, round(mean_count * (0.5 + self._draw())))
        if not self._records_nodes:
            return count
        missing_s = self._price_factor * self._next_record_cost - (self.remaining_seconds - self._reserve_s)
        if deferred and 0 < missing_s < math.inf:  # until the next one can be recorded
            count = min(count, math.ceil(missing_s / max(allowance_s - self._fast_path_overhead_s, 1e-9)))
        return min(count, max(MAX_STEPS_BETWEEN_RECORDED - self._steps_since_full_record, 1))

    @property
    def room(self) -> StepRoom:
        """Return what the steps that follow have room for, as ``next_fast_path_steps`` left it."""
        if self._unrecorded_share is None or not self._observed_overhead_s:
            return StepRoom(self.long_steps)
        allowance_s = OBSERVED_STEP_FRACTION * self._unrecorded_share * self._mean_step_s
        return StepRoom(self.long_steps, allowance_s / self._observed_overhead_s)

    def charge_deferred_records(self, steps: int, seconds: float) -> None:
        """Account for the deferred records of `steps` fast-path steps, which took `seconds` to make and deliver.

        ``charge_fast_path_steps`` counted these steps as steps without a record.
        """
        self.deferred_records += steps
        self.steps_without_record -= steps
        self._deferred_totals = 0.9 * self._deferred_totals[0] + seconds, 0.9 * self._deferred_totals[1] + steps

    def charge_fast_path_steps(self, steps: int, seconds: float, overhead: float) -> None:
        """Charge `steps` fast-path steps, which together took `seconds`, `overhead` of them our own work."""
        self.steps += steps
        self.steps_without_record += steps
        self._steps_since_full_record += steps
        script_seconds = max(seconds - overhead, 0.0)
        self.script_seconds += script_seconds
        self.spent += overhead
        self._uncharged_s += max(overhead - FAST_PATH_CHARGE_FRACTION * (self.share or 0.0) * script_seconds, 0.0)
        self._mean_step_s = _running_mean(self._mean_step_s, script_seconds / steps)
        # A stretch has a fixed cost, which in a short stretch distorts the cost per step.
        self._fast_path_totals = 0.9 * self._fast_path_totals[0] + overhead, 0.9 * self._fast_path_totals[1] + steps
        self._fast_path_overhead_s = self._fast_path_totals[0] / self._fast_path_totals[1]

    def _draw(self) -> float:
        """Return a pseudo-random number from 0 to 1. The generators of Python and torch belong to the script."""
        self._random_state = (1103515245 * self._random_state + 12345) % 2**31
        return self._random_state / 2**31


def _running_mean(before: float, now: float) -> float:
    """Return the running mean `before`, updated with `now`; `now` if there is no mean yet (0)."""
    return before + 0.1 * (now - before) if before else now


def _updated_cost(before: float | None, now: float) -> float:
    """Return the running mean `before` of costs, updated with `now`; `now` if there is no mean yet."""
    return now if before is None else before + 0.2 * (now - before)
