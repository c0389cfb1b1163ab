"""What watching costs, step by step: Note [What watching takes]."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from ...torchside.machine import waited
from ..own_time import OwnTime

#: Later steps that it takes to tell a share, and the share of their time that has to be the script's own.
FEW, OWN = 10, 0.01
#: Seconds from one look at the waiting to the next, at least, and as many times those that it takes; the most that is
#: believed.
LOOK, TIMES, SLOWEST = 0.02, 1000, 50.0
_clock = time.perf_counter


@dataclass(frozen=True)
class Took:
    """What watching has taken so far.

    :ivar first_steps, first: the steps at the start that are looked at closely, and the seconds of our work in them.
    :ivar steps, seconds, watching: the steps after them, their seconds, and what of those was our work.
    """

    first_steps: int
    first: float
    steps: int
    seconds: float
    watching: float

    @property
    def share(self) -> float | None:
        """Of the time that the later steps would have taken alone. ``None`` where they are too few, or where what is
        left for the script is too little to divide by."""
        alone = self.seconds - self.watching
        return self.watching / alone if self.steps >= FEW and alone > OWN * self.seconds else None

    def info(self) -> dict[str, Any]:
        """As it is stored with a run: ``cost`` is the share."""
        return {"cost": self.share, "first_steps": self.first_steps, "first_cost": self.first, "own": self.watching}


class Cost:
    """Tells the first steps from the later ones.

    :param careful: how many steps at the start are looked at closely.
    """

    def __init__(self, own: OwnTime, careful: int) -> None:
        self._own, self._careful = own, careful
        self._steps = 0
        #: What was clocked and counted before the running step.
        self._before = (0.0, 0.0)
        #: Seconds of our work in the first steps; of the later ones, and of our work in them.
        self._first = self._seconds = self._watching = 0.0
        #: The clock and the waiting when they were looked at last, and how much longer everything took for it.
        self._looked = (_clock(), waited())
        self._next = 0.0
        self._slower = 1.0

    @property
    def of_step(self) -> float:
        """Seconds of our work since the last step was over."""
        clocked, counted = self._before
        return self._own.clocked - clocked + (self._own.counted - counted) * self._slower

    def step_over(self, seconds: float, steps: int = 1) -> float:
        """`steps` steps took `seconds`: how many of them were our work."""
        self._look(_clock())
        mine = min(max(self.of_step, 0.0), seconds)  # samples may correct what was said of the step before
        self._before = self._own.clocked, self._own.counted
        self._steps += steps
        if self._steps <= self._careful:
            self._first += mine
        else:
            self._seconds += seconds
            self._watching += mine
        return mine

    def _look(self, now: float) -> None:
        """Whether others use the processor."""
        if now >= self._next:
            passed, looked = now - self._looked[0], (now, waited())
            self._next = now + max(LOOK, TIMES * (_clock() - now))
            ran = passed - (looked[1] - self._looked[1])
            self._slower = passed / ran if passed / SLOWEST < ran <= passed else 1.0
            self._looked = looked

    @property
    def took(self) -> Took:
        first = min(self._steps, self._careful)
        # What was done before a first step was over, as in a script without one, is told with the first steps.
        rest = self.of_step if self._steps < self._careful else 0.0
        return Took(first, self._first + rest, self._steps - first, self._seconds, self._watching)
