"""What watching costs, step by step: Note [What watching takes].

Note [The overhead]: the overhead of a run is one number, the seconds that backprobe added, over the seconds that the
script takes without it. Five parts add up to it, and no second is in two of them: the start (backprobe's imports and
what a session sets up; torch's import is the script's), the first steps (inspected closely, or paid from the second of
work that any run has), the later steps (what the budget bounds), the steps in which a failure was explained, and the
end (findings, files, report). The script's seconds are all others since the start. Seconds in which the thread waited
for a processor are in neither.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...process_clock import Moment, Startup, waited
from ..own_time import OwnTime

#: Later steps that it takes to tell a share, and the share of their time that has to be the script's own.
FEW, OWN = 10, 0.01
#: Seconds from one look at the waiting to the next, at least, and as many times those that it takes; seconds that this
#: thread has stood in our work, after which it is looked at once.
LOOK, TIMES, LONG = 0.02, 1000, 1e-3
#: The part of the script's own time in a step that is taken for waiting, at most.
MOST = 0.98
#: Steps that recorded ones are compared with, and recorded ones of which the middle counts; as many it takes at least.
NEAR, ENOUGH = 32, 5
_clock = time.perf_counter


@dataclass(frozen=True)
class Took:
    """What watching has taken so far.

    :ivar first_steps, first: the steps at the start that are looked at closely, and, under a budget, those that live on
        the seconds that any run has; and the seconds of our work in them.
    :ivar steps, seconds, watching: the steps after them, their seconds, and what of those was our work; without those
        in which they waited for a processor.
    :ivar explaining: seconds of our work in steps in which a failure was explained; these are in no other number.
    :ivar start, end: seconds of our work before the script began and after it ended.
    :ivar elapsed, waited: seconds since the start: those in which this thread ran or slept, and those in which it
        waited for a processor.
    :ivar budget: the share of the script's time that the later steps may take.
    """

    first_steps: int
    first: float
    steps: int
    seconds: float
    watching: float
    explaining: float = 0.0
    start: float = 0.0
    end: float = 0.0
    elapsed: float = 0.0
    waited: float = 0.0
    budget: float | None = None

    @property
    def share(self) -> float | None:
        """Of the time that the later steps would have taken alone. ``None`` where they are too few, or where what is
        left for the script is too little to divide by."""
        alone = self.seconds - self.watching
        return self.watching / alone if self.steps >= FEW and alone > OWN * self.seconds else None

    @property
    def added(self) -> float:
        """Seconds that backprobe added to the script's."""
        return self.start + self.first + self.watching + self.explaining + self.end

    def info(self) -> dict[str, Any]:
        """The numbers as a run stores them: ``overhead`` is the whole, ``cost`` the share of the later steps."""
        overhead = {
            "added": self.added,
            "alone": max(self.elapsed - self.added, 0.0),
            "waited": self.waited,
            "start": self.start,
            "first_steps": self.first,
            "later_steps": self.watching,
            "explaining": self.explaining,
            "end": self.end,
            "budget": self.budget,
        }
        steps = {"cost": self.share, "first_steps": self.first_steps, "first_cost": self.first, "own": self.watching}
        return {**steps, "overhead": overhead}


class Slowed:
    """How much longer the script's own work takes in a recorded step.

    What we do there takes memory and the processor's caches from it, which no clock of ours sees. Under a budget there
    are steps beside it that are not recorded: the middle of the last differences is taken, so that it needs no steps of
    equal length.
    """

    def __init__(self) -> None:
        self._others: deque[float] = deque(maxlen=NEAR)
        self._more: deque[float] = deque(maxlen=NEAR)

    def step_over(self, alone: float, recorded: bool) -> float:
        """A step took `alone` seconds without our own work: those of them that it takes longer for being recorded."""
        if not recorded:
            self._others.append(alone)
            return 0.0
        if len(self._others) >= ENOUGH:
            self._more.append(alone - statistics.median(self._others))
        return max(statistics.median(self._more), 0.0) if len(self._more) >= ENOUGH else 0.0


class Cost:
    """Tells the first steps from the later ones.

    :param careful: how many steps at the start are looked at closely.
    :param free: seconds of our work after those that are told with them.
    :param budget: the share of the script's time that the later steps may take.
    """

    def __init__(self, own: OwnTime, careful: int, free: float = 0.0, budget: float | None = None) -> None:
        self._own, self._careful, self._free, self._budget = own, careful, free, budget
        #: When the first of our work began, and the seconds until the script's first line and after its last.
        self._began = Moment.now()
        self._start = self._end = 0.0
        self._end_from: Moment | None = None
        self._frozen: Took | None = None
        #: Whether a failure is explained in the running step, and was in the step before; the seconds of our
        #: work in such steps.
        self.explains = self.explained = False
        self._explaining = 0.0
        #: How many steps came after the first ones in which no failure was explained.
        self._later = 0
        self._steps = self._at_first = 0
        #: Seconds of our work before the running step.
        self._before = 0.0
        #: Nodes that had run with a hook before the running step.
        self._nodes = 0
        self._slowed = Slowed()
        #: Seconds of the last step, or steps, that were told of, without waiting.
        self.seconds = 0.0
        #: Seconds of our work in the first steps; of the later ones, and of our work in them.
        self._first = self._seconds = self._watching = 0.0
        #: When the waiting is looked at next; what it was, how long we had stood, the seconds of what happens often,
        #: when that was done last; since then, those of the script's own in steps.
        self._next, self._waited, self._stood, self._sampled, self._alone = 0.0, waited(), 0.0, 0.0, 0.0
        #: Waiting in our work; and in the steps, as far as it was not yet taken off them.
        self._in_ours = self._in_steps = 0.0

    @property
    def _ours(self) -> float:
        own = self._own
        return own.clocked + own.counted - self._in_ours

    @property
    def of_step(self) -> float:
        """Seconds of our work since the last step was over."""
        return self._ours - self._before

    def started(self, startup: Startup | None) -> None:
        """The script is about to begin. All since `startup`, or since this object was made, is the start."""
        if startup is not None:
            self._began = startup.began
        elsewhere = startup.script_s if startup is not None else 0.0
        self._start = max(self._began.seconds_until(Moment.now()) - elsewhere, 0.0)
        self._before = self._ours  # what was clocked until now is a part of the start, not of the first step

    def mark_end(self) -> tuple[Moment, float]:
        """The script is over, and its session is about to end: give this to ``begin_end`` when it has."""
        return Moment.now(), self._ours

    def begin_end(self, mark: tuple[Moment, float]) -> None:
        """The session has ended. Time since `mark` is the end, except what the last step accounts for."""
        if self._end_from is None:
            self._end_from, before = mark
            self._end = before - self._ours + (self.of_step if self._steps >= self._careful else 0.0)

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """What is done inside, such as waiting for other processes, is no part of the end."""
        begin = Moment.now()
        try:
            yield
        finally:
            self._end -= begin.seconds_until(Moment.now())

    def freeze(self) -> Took:
        """The end is over: ``took`` stays as it is now."""
        self._frozen = took = self.took
        return took

    def goes_on(self) -> None:
        """Steps go on after a pause: what was waited in it is in none."""
        self._waited, self._stood = waited(), self._own.stood
        self._sampled, self._alone = self._own.sampled, 0.0

    def step_over(self, seconds: float, steps: int = 1) -> float:
        """`steps` steps took `seconds`: how many of them were our work."""
        before = self._alone
        self._alone += max(seconds - self.of_step, 0.0)
        looked = self._look(_clock())
        mine = min(max(self.of_step, 0.0), seconds)  # samples may correct what was said of the step before
        self._before = self._ours
        lost = min(self._in_steps, MOST * (seconds - mine))
        self._in_steps -= lost
        if looked:  # of some short steps at once: as much as they can have waited comes off the next
            self._in_steps = min(self._in_steps, before)
        self.seconds = seconds - lost
        closely = self._steps < self._careful
        recorded, self._nodes = self._own.nodes > self._nodes, self._own.nodes
        if not closely:
            mine += self._slowed.step_over((self.seconds - mine) / steps, recorded)
            mine = min(mine, seconds)
        self._steps += steps
        self.explained, self.explains = self.explains, False
        first = closely or self._free > 0
        self._free -= 0.0 if closely else mine
        if first:
            self._at_first = self._steps
        if self.explained:
            self._explaining += mine
        elif first:
            self._first += mine
        else:
            self._later += steps
            self._seconds += self.seconds
            self._watching += mine
        return mine

    def _look(self, now: float) -> bool:
        """Whether others use the processor, if it is time to ask."""
        own = self._own
        stood = max(own.stood - self._stood, 0.0)
        if now < self._next and stood <= LONG:
            return False
        so_far = waited()
        self._next = now + max(LOOK, TIMES * (_clock() - now))
        since, often, alone = max(so_far - self._waited, 0.0), max(own.sampled - self._sampled, 0.0), self._alone
        self._waited, self._stood, self._sampled, self._alone = so_far, own.stood, own.sampled, 0.0
        clocked = min(stood, since)
        # What is left was waited in the script's own work, and in ours that happens often: as each takes.
        self._in_ours += clocked + ((since - clocked) * often / (often + alone) if often else 0.0)
        self._in_steps += since
        return True

    @property
    def took(self) -> Took:
        if self._frozen is not None:
            return self._frozen
        # What was done before a first step was over, as in a script without one, is told with the first steps.
        rest = self.of_step if self._steps < self._careful else 0.0
        now = Moment.now()
        end = 0.0 if self._end_from is None else max(self._end_from.seconds_until(now) + self._end, 0.0)
        return Took(
            *(self._at_first, self._first + rest, self._later, self._seconds, self._watching),
            explaining=self._explaining,
            start=self._start,
            end=end,
            elapsed=self._began.seconds_until(now),
            waited=max(now.waited - self._began.waited, 0.0),
            budget=self._budget,
        )
