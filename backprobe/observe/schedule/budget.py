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


class Budget:
    """The overhead budget, which decides for each step whether to record it.

    :param share: the allowed share of the script's own time; ``None``: record every step.
    :param nodes: whether nodes are recorded in any step.
    """

    def __init__(self, share: float | None, nodes: bool = True) -> None:
        self.share, self._nodes = share, nodes
        #: The share for unrecorded steps.
        self._floor = share if nodes or share is not None else SHARE_WITHOUT_BUDGET
        #: Seconds of the script's own work, and of ours.
        self.alone = self.spent = 0.0
        #: Running mean of the cost of a step that is recorded whole, without close inspection, in seconds; ``None``
        #: before the first. And the same for a step of which only the backward is recorded.
        self.cost: float | None = None
        self.backward: float | None = None
        #: Seconds spent on steps of both kinds since both are possible, and how many backward-only steps were recorded.
        self._on_whole = self._on_backward = 0.0
        self.repeated = 0
        #: Whether steps may repeat an earlier graph, as the session reports; the step before which none is taken to
        #: repeat, because some matched no known layout; and the length of that period in steps.
        self.may_repeat = False
        self._whole_until, self._distrust = 0, 4
        #: How many steps were recorded, and how many steps there were.
        self.recorded = self.steps = 0
        #: How many steps took the fast path without a record, and how many got a deferred record.
        self.passed = self.told = 0
        #: Of the latest deferred records: decayed sums of the seconds that they took, and of steps.
        self._telling = 2e-3, 1000.0
        #: What is left of the seconds reserved for close inspections.
        self._kept = RESERVED_FRACTION * FREE_SECONDS
        #: Mean seconds of a step without us; our seconds in an unrecorded step, and in a fast-path step.
        self._length = self._heard = self._pass = 0.0
        #: Of the latest stretches of fast-path steps: decayed sums of our seconds, and of steps.
        self._stretches = 0.0, 0.0
        #: Seconds that fast-path steps took beyond their part of the allowance.
        self._beyond = 0.0
        #: How many unrecorded steps were explained.
        self.explained = 0
        #: Backward calls in a row with a non-finite loss, as far as they were explained.
        self._bad_in_a_row = 0
        #: Whether non-finite losses are only counted, how many steps were counted, and the latest of them.
        self.only_counts = False
        self.only_counted, self._last_counted = 0, -1
        #: Whether fast-path steps check gradients.
        self.peeks = False
        #: Whether steps are long: then some steps are checked in more detail instead of taking the fast path.
        self.long_steps = False
        #: Steps since the last recorded step, and since the last that was recorded whole.
        self._since = self._since_whole = 0
        self._patience = 1.0
        self._state = 2024

    def step_ended(
        self,
        seconds: float,
        mine: float,
        recorded: bool,
        inspecting: bool,
        first: bool = False,
        asked: bool = False,
        repeats: bool = False,
        explains: bool = False,
    ) -> None:
        """Account for a step that took `seconds`, `mine` of them our own work.

        `first`: one of the steps at the start. `asked`: recorded because something was new. `repeats`: only its
        backward was recorded. `explains`: a failure was explained in it, so that its cost is not typical.
        """
        self.steps += 1
        self.recorded += recorded
        self.repeated += repeats
        if first:
            return
        self.alone += max(seconds - mine, 0.0)
        self.spent += mine
        self._length = _mean(self._length, max(seconds - mine, 0.0))
        if not recorded and not explains:  # the first one takes much more
            self._heard = _mean(self._heard, mine) if mine > self._heard else 0.5 * (self._heard + mine)
        self._since = 0 if recorded else self._since + 1
        self._since_whole = 0 if recorded and not repeats else self._since_whole + 1
        if recorded:
            self._patience = 1.0 + self._draw()
            if asked:
                self._kept = max(self._kept - mine, 0.0)
            if repeats:
                self._on_backward += mine
                self.backward = mine if self.backward is None else self.backward + 0.2 * (mine - self.backward)
            elif not inspecting and not explains:
                self._on_whole += mine if self.may_repeat and not self._all_whole else 0.0
                self.cost = mine if self.cost is None else self.cost + 0.2 * (mine - self.cost)

    def was_like_none(self) -> None:
        """Note that a step was expected to repeat, but its graph matches no known layout."""
        self._distrust = min(2 * self._distrust, MAX_STEPS_BETWEEN_RECORDED)
        self._whole_until = self.steps + self._distrust

    @property
    def repeats(self) -> bool:
        """Return whether the next recorded step has only its backward recorded."""
        if not self.may_repeat or self._all_whole or self._since_whole >= MAX_STEPS_BETWEEN_RECORDED:
            return False
        return self.steps >= self._whole_until and self._on_backward < self._on_whole

    @property
    def _all_whole(self) -> bool:
        """Return whether every step can be recorded whole."""
        if self.share is None or self.cost is None or self.spent < (1.0 - RESERVED_FRACTION) * FREE_SECONDS:
            return True
        return self.cost <= self.share * self._length

    def wants(self) -> bool:
        """Return whether the next step is to be recorded."""
        if self.share is None or self._since_whole >= MAX_STEPS_BETWEEN_RECORDED:
            return True
        if self.only_counts:
            return False
        left, price = self.left - self._kept, self._price
        return left >= self._patience * price if price else left > 0

    @property
    def _price(self) -> float:
        """Return the extra seconds that the next step takes if it is recorded; 0 if unknown."""
        return (self.backward if self.repeats and self.backward is not None else self.cost) or 0.0

    @property
    def affords(self) -> bool:
        """Return whether the budget covers a step that is requested."""
        return self.left >= 0

    @property
    def explains(self) -> bool:
        """Return whether a failure in an unrecorded step is explained.

        The number is limited, because a run may go on for long after its loss became NaN.
        """
        return self.explained < MAX_EXPLAINED_FAILURES or self.affords

    def bad_loss(self, scaled: bool) -> None:
        """Count a non-finite loss that was explained. `scaled`: a ``GradScaler`` may have caused it."""
        self._bad_in_a_row += 1
        self.only_counts = self._floor is not None and not scaled and self._bad_in_a_row >= MAX_CONSECUTIVE_BAD_LOSSES

    def count_bad_loss(self, step: int) -> None:
        """Count the non-finite loss of `step`, which is not explained."""
        if step != self._last_counted:
            self.only_counted, self._last_counted = self.only_counted + 1, step

    def good_loss(self) -> None:
        """Note a finite loss, which ends a row of non-finite ones."""
        if self._bad_in_a_row:
            self._bad_in_a_row, self.only_counts = 0, False

    @property
    def left(self) -> float:
        """Return the seconds that may still be spent."""
        return math.inf if self.share is None else FREE_SECONDS + self.share * self.alone - (self.spent - self._beyond)

    def tells(self) -> bool:
        """Return whether the allowance covers deferred records of fast-path steps."""
        seconds, steps = self._telling
        return self._floor is not None and seconds <= DEFERRED_RECORD_FRACTION * self._floor * self._length * steps

    def lets_pass(self, tells: bool = False, several: bool = False) -> int:
        """Return how many steps take the fast path after this one, which was not recorded.

        :param tells: they get deferred records.
        :param several: the run has other processes, which need to know this one's progress soon.
        """
        if self._floor is None or not self._heard:
            return 0
        pays = self._floor * self._length
        self.long_steps = pays >= LONG_STEP_ALLOWANCE_S
        rest = (UNRECORDED_STEP_FRACTION_IF_DEFERRED if tells else UNRECORDED_STEP_FRACTION) * pays
        if self._heard <= rest or (self.share is None and not (tells and self.long_steps)):
            return 0  # without a budget every step gets a record, and short ones are not brief
        if not tells and self._heard <= pays and self.tells():  # long enough for deferred records, which keep its loss
            return 0
        self.peeks = self._pass <= GRADIENT_CHECK_FRACTION * pays
        room, length = rest - self._pass, max(self._length, 1e-6)
        if tells:
            most = (MAX_FAST_PATH_SECONDS if several else MAX_DEFERRED_SECONDS) / length
        else:
            most = max(MAX_FAST_PATH_STEPS, MAX_FAST_PATH_SECONDS / length)
        far = min(most, self._heard / room) if room > 0 else most
        count = max(1, round(far * (0.5 + self._draw())))
        if not self._nodes:
            return count
        missing = self._patience * self._price - (self.left - self._kept)
        if tells and 0 < missing < math.inf:  # until the next one can be recorded
            count = min(count, math.ceil(missing / max(pays - self._pass, 1e-9)))
        return min(count, max(MAX_STEPS_BETWEEN_RECORDED - self._since_whole, 1))

    def telling(self, steps: int, seconds: float) -> None:
        """Account for deferred records of `steps` fast-path steps, which took `seconds` to write."""
        self.told += steps
        self.passed -= steps
        self._telling = 0.9 * self._telling[0] + seconds, 0.9 * self._telling[1] + steps

    def have_passed(self, steps: int, seconds: float, mine: float) -> None:
        """Account for `steps` fast-path steps, which took `seconds`, `mine` of them our own work."""
        self.steps += steps
        self.passed += steps
        self._since += steps
        self._since_whole += steps
        alone = max(seconds - mine, 0.0)
        self.alone += alone
        self.spent += mine
        self._beyond += max(mine - FAST_PATH_CHARGE_FRACTION * (self.share or 0.0) * alone, 0.0)
        self._length = _mean(self._length, alone / steps)
        # A stretch has a fixed cost, which in a short stretch distorts the cost per step.
        self._stretches = 0.9 * self._stretches[0] + mine, 0.9 * self._stretches[1] + steps
        self._pass = self._stretches[0] / self._stretches[1]

    def _draw(self) -> float:
        """Return a pseudo-random number from 0 to 1. The generators of Python and torch belong to the script."""
        self._state = (1103515245 * self._state + 12345) % 2**31
        return self._state / 2**31


def _mean(before: float, now: float) -> float:
    """Return the running mean `before`, updated with `now`."""
    return before + 0.1 * (now - before) if before else now
