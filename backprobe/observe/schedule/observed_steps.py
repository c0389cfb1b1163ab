"""The steps in which trackers look at more than in others: gradients and weights are accounted for.

Note [Rows of observed steps]: most faults of updates show only if what happens in successive steps is known. So the
first steps are observed, and later on rows of a few successive steps. Such a step costs several times another step
whose nodes are not recorded, and the more the more parameters there are. So its cost is measured, and only so many rows
are kept whole that they take at most ``OBSERVED_STEP_FRACTION`` of the allowance; the steps of other rows may take the
fast path, and those that do not are observed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from .budget import StepRoom

if TYPE_CHECKING:
    import torch

    from .steps import StepWatch

#: Given a step and what steps have room for, returns how many steps from that one on may take the fast path.
FastPathLimit: TypeAlias = Callable[[int, StepRoom], int]

#: Observed steps: the first ones, and then this many in a row out of every so many.
FIRST_OBSERVED_STEPS, OBSERVED_STEPS_IN_A_ROW, OBSERVATION_INTERVAL = 16, 5, 64
#: Of these rows, every n-th is kept whole: the smallest n, and the largest, which also holds if steps are short.
MIN_ROWS_APART, MAX_ROWS_APART = 2, 16
#: Maximum number of optimizers that first step later than that and whose first steps are observed too, and number of
#: these steps.
MAX_LATE_OPTIMIZERS, FIRST_OBSERVED_STEPS_IF_LATE = 4, 8


def is_observed_step(step: int) -> bool:
    """Return whether a step may be observed for all optimizers: one of the first, or in a row of later steps."""
    return step < FIRST_OBSERVED_STEPS or step % OBSERVATION_INTERVAL < OBSERVED_STEPS_IN_A_ROW


def ends_observed_row(step: int) -> bool:
    """Return whether a step is the last one of the first steps, or of a later row of observed steps."""
    return step == FIRST_OBSERVED_STEPS - 1 or step % OBSERVATION_INTERVAL == OBSERVED_STEPS_IN_A_ROW - 1


def rows_apart(room: StepRoom) -> int:
    """Return n if every n-th row is kept whole: a power of two, so that rows stay where they are if it changes."""
    if not room.long_steps:
        return MAX_ROWS_APART
    apart = MIN_ROWS_APART
    while apart < MAX_ROWS_APART and room.observed_share * apart * OBSERVATION_INTERVAL < OBSERVED_STEPS_IN_A_ROW:
        apart *= 2
    return apart


class ObservedSteps:
    """The steps to observe. The first ones, and some rows of later ones, do not take the fast path.

    One object serves all trackers of a session.
    """

    def __init__(self, steps: StepWatch) -> None:
        """Start before the first step."""
        self._steps = steps
        #: Every n-th row is kept whole.
        self._rows_apart = MIN_ROWS_APART
        #: Late optimizers; the first step of the last one; and how many more there may be.
        self._late: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._late_start, self._late_optimizers_left = -FIRST_OBSERVED_STEPS_IF_LATE, MAX_LATE_OPTIMIZERS

    def optimizer_found(self, optimizer: torch.optim.Optimizer) -> None:
        """Note an optimizer that is about to step for the first time, once or several times."""
        if self._steps.index >= FIRST_OBSERVED_STEPS and self._late_optimizers_left and optimizer not in self._late:
            self._late.add(optimizer)
            self._late_optimizers_left -= 1
            self._late_start = self._steps.index

    @property
    def is_observed(self) -> bool:
        """Return whether the running step is observed."""
        return self.observes(self._steps.index)

    @property
    def is_first(self) -> bool:
        """Return whether the running step is one of the first of the run, or of an optimizer that began late."""
        return self._is_first(self._steps.index)

    def observes(self, step: int) -> bool:
        """Return whether `step`, the running one or the last, is observed."""
        return self._is_first(step) or is_observed_step(step)

    def _is_first(self, step: int) -> bool:
        """Return whether `step` is one of the first of the run, or of an optimizer that began late."""
        return step < FIRST_OBSERVED_STEPS or 0 <= step - self._late_start < FIRST_OBSERVED_STEPS_IF_LATE

    def steps_until_observed(self, step: int, room: StepRoom) -> int:
        """Return how many steps from `step` on may take the fast path: a ``FastPathLimit``."""
        is_late = 0 <= step - self._late_start < FIRST_OBSERVED_STEPS_IF_LATE
        if step < FIRST_OBSERVED_STEPS:
            return 0 if is_late or room.long_steps else FIRST_OBSERVED_STEPS - step
        if step % OBSERVATION_INTERVAL == 0 or step % OBSERVATION_INTERVAL >= OBSERVED_STEPS_IN_A_ROW:
            self._rows_apart = rows_apart(room)  # and not within a row, which is kept whole if it has begun
        interval = self._rows_apart * OBSERVATION_INTERVAL
        return 0 if is_late or step % interval < OBSERVED_STEPS_IN_A_ROW else interval - step % interval
