"""Follows the loss of every step to its first NaN or Inf: since when it has grown."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from ... import thresholds
from ...records import BriefSteps, LossGrowth, Step

#: Maximum number of losses that are kept of a growth; then every second one is dropped.
MAX_LOSSES = 512


class LossHistory:
    """The loss since it was last at its usual level, in every step of which it is known."""

    def __init__(self) -> None:
        """Start without losses."""
        self._level = float("inf")
        self._recent: deque[float] = deque(maxlen=thresholds.LOSS_LEVEL_STEPS)
        self._usual: tuple[int, float] = (0, 0.0)
        self._growing: list[tuple[int, float]] = []
        self._is_finite = True

    def add_step(self, step: Step) -> None:
        """Add the loss of a step, if it is known."""
        if step.loss is not None:
            self._add(step.index, step.loss)

    def add_brief(self, steps: BriefSteps) -> None:
        """Add the losses of fast-path steps."""
        losses, total = steps.losses, sum(steps.losses)
        is_finite = total - total == 0.0
        if (
            is_finite
            and len(losses) > thresholds.LOSS_LEVEL_STEPS
            and max(map(abs, losses)) <= thresholds.LOSS_GROWTH_FACTOR * self._level
        ):
            # None of them has grown: the last ones are enough.
            for step in steps.last(thresholds.LOSS_LEVEL_STEPS):
                self.add_step(step)
            return
        for at, loss in enumerate(losses):
            if steps.calls[at]:
                self._add(steps.first + at, loss)

    def _add(self, index: int, loss: float) -> None:
        """Add the loss of the step with this index."""
        if loss - loss != 0.0:
            self._is_finite = False
            return
        size = abs(loss)
        self._is_finite = True
        self._recent.append(size)
        if size <= thresholds.LOSS_GROWTH_FACTOR * self._level:
            self._usual = index, size
            self._growing.clear()
        else:
            self._growing.append((index, size))
            if len(self._growing) >= MAX_LOSSES:
                del self._growing[1:-1:2]
        if size < self._level and len(self._recent) == thresholds.LOSS_LEVEL_STEPS:
            self._level = min(self._level, statistics.median(self._recent))

    def records(self) -> Iterator[LossGrowth]:
        """Yield a record if the loss grew until it was NaN or Inf, and has not been finite again."""
        growing = self._growing
        if self._is_finite or len(growing) < thresholds.LOSS_GROWTH_STRETCHES:
            return
        bounds = [
            len(growing) * at // thresholds.LOSS_GROWTH_STRETCHES for at in range(thresholds.LOSS_GROWTH_STRETCHES + 1)
        ]
        medians = tuple(statistics.median(loss for _, loss in growing[one:other]) for one, other in pairwise(bounds))
        yield LossGrowth(*self._usual, *growing[-1], medians)
