"""The steps in which gradients and weights are accounted for."""

from __future__ import annotations

from ..tracker_context import TrackerContext

#: Observed steps: the first ones, and then this many in a row out of every so many.
FIRST_OBSERVED_STEPS, OBSERVED_STEPS_IN_A_ROW, OBSERVATION_INTERVAL = 16, 5, 64
#: Of these rows, every n-th is kept whole, if steps are long, and if they are short: the others may take the fast path.
KEPT_ROWS_IF_LONG, KEPT_ROWS_IF_SHORT = 2, 16
#: Maximum number of optimizers that first step later than that and whose first steps are observed too, and number of
#: these steps.
MAX_LATE_OPTIMIZERS, FIRST_OBSERVED_STEPS_IF_LATE = 4, 8


def is_observed_step(step: int) -> bool:
    """Return whether a step is observed for all optimizers: one of the first, or in a row of later steps."""
    return step < FIRST_OBSERVED_STEPS or step % OBSERVATION_INTERVAL < OBSERVED_STEPS_IN_A_ROW


def ends_observed_row(step: int) -> bool:
    """Return whether a step is the last one of the first steps, or of a later row of observed steps."""
    return step == FIRST_OBSERVED_STEPS - 1 or step % OBSERVATION_INTERVAL == OBSERVED_STEPS_IN_A_ROW - 1


class ObservedSteps:
    """The steps to observe. The first ones, and some rows of later ones, do not take the fast path."""

    def __init__(self, context: TrackerContext) -> None:
        self._steps = context.steps
        #: The first step of the last late optimizer, and how many more late optimizers there may be.
        self._late_start, self._late_optimizers_left = -FIRST_OBSERVED_STEPS_IF_LATE, MAX_LATE_OPTIMIZERS
        context.fast_path_limits.append(self._steps_until_observed)

    def optimizer_found(self) -> None:
        """Note that an optimizer is about to step for the first time."""
        if self._steps.index >= FIRST_OBSERVED_STEPS and self._late_optimizers_left:
            self._late_optimizers_left -= 1
            self._late_start = self._steps.index

    @property
    def is_observed(self) -> bool:
        """Return whether the running step is observed."""
        return self.is_first or is_observed_step(self._steps.index)

    @property
    def is_first(self) -> bool:
        """Return whether the running step is one of the first of the run, or of an optimizer that began late."""
        step = self._steps.index
        return step < FIRST_OBSERVED_STEPS or 0 <= step - self._late_start < FIRST_OBSERVED_STEPS_IF_LATE

    def _steps_until_observed(self, step: int, long_steps: bool) -> int:
        """Return how many steps from `step` on may take the fast path.

        :param long_steps: each step has room for more than the fast path.
        """
        is_late = 0 <= step - self._late_start < FIRST_OBSERVED_STEPS_IF_LATE
        interval = (KEPT_ROWS_IF_LONG if long_steps else KEPT_ROWS_IF_SHORT) * OBSERVATION_INTERVAL
        if step < FIRST_OBSERVED_STEPS:
            return 0 if is_late or long_steps else FIRST_OBSERVED_STEPS - step
        return 0 if is_late or step % interval < OBSERVED_STEPS_IN_A_ROW else interval - step % interval
