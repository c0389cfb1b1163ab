"""Measures the overhead of recording, step by step (Note [Own time]).

Note [The overhead]: the overhead of a run is one number: the seconds that backprobe added, divided by the seconds that
the script takes without it. It is the sum of five disjoint parts: the start (backprobe's imports and session set-up;
torch's import is the script's), the first steps (closely inspected, or paid from the second of work that any run has),
the later steps (bounded by the budget), the steps in which a failure was explained, and the end (findings, files,
report). All other seconds since the start are the script's. Seconds in which the thread waited for a processor are in
neither.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...basics.process_clock import Moment, Startup, waited
from ..own_time import OwnTime

#: The least number of later steps for which a share is computed, and the least part of their time that must be the
#: script's own.
MIN_LATER_STEPS, MIN_SCRIPT_FRACTION = 10, 0.01
#: The minimum interval between reads of the waiting time, in seconds, and as a multiple of the duration of a read; and
#: the seconds that the thread did not run during our work after which it is read at once.
MIN_READ_INTERVAL_S, READ_INTERVAL_RATIO, MAX_UNREAD_SECONDS = 0.02, 1000, 1e-3
#: The largest part of the script's own time in a step that may be counted as waiting.
MAX_WAITING_FRACTION = 0.98
#: How many unrecorded and recorded steps the comparison keeps, and how many of each it needs at least.
MAX_COMPARED_STEPS, MIN_COMPARED_STEPS = 32, 5
_clock = time.perf_counter


@dataclass(frozen=True)
class CostSummary:
    """The cost of recording so far.

    :ivar first_steps, first: the number of steps at the start that are closely inspected or, under a budget, paid from
        the seconds that any run has; and the seconds of our work in them.
    :ivar steps, seconds, watching: the number of later steps, their seconds, and the seconds of our work in them, all
        without waiting for a processor.
    :ivar explaining: seconds of our work in steps in which a failure was explained; these are in no other number.
    :ivar start, end: seconds of our work before the script began and after it ended.
    :ivar elapsed, waited: seconds since the start in which this thread ran or slept, and in which it waited for a
        processor.
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
        """Return backprobe's share of the later steps' time, relative to the script's own time in them.

        ``None`` if the steps are too few, or if the script's own time is too small a part.
        """
        alone = self.seconds - self.watching
        enough = self.steps >= MIN_LATER_STEPS and alone > MIN_SCRIPT_FRACTION * self.seconds
        return self.watching / alone if enough else None

    @property
    def added(self) -> float:
        """Return the seconds that backprobe added to the script's."""
        return self.start + self.first + self.watching + self.explaining + self.end

    def info(self) -> dict[str, object]:
        """Return the numbers as a run stores them: ``overhead`` is the whole, ``cost`` the share of the later steps."""
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


class SlowdownEstimate:
    """Estimate of how much longer the script's own work takes in a recorded step.

    Our work evicts the script's data from memory and processor caches, which timing our work does not show. Under a
    budget there are unrecorded steps nearby to compare with. The median of the latest differences is used, so steps
    need not be of equal length.
    """

    def __init__(self) -> None:
        self._unrecorded_s: deque[float] = deque(maxlen=MAX_COMPARED_STEPS)
        self._differences_s: deque[float] = deque(maxlen=MAX_COMPARED_STEPS)

    def add_step(self, alone: float, recorded: bool) -> float:
        """Add a step that took `alone` seconds without our own work; return the part of them caused by recording."""
        if not recorded:
            self._unrecorded_s.append(alone)
            return 0.0
        if len(self._unrecorded_s) >= MIN_COMPARED_STEPS:
            self._differences_s.append(alone - statistics.median(self._unrecorded_s))
        return (
            max(statistics.median(self._differences_s), 0.0) if len(self._differences_s) >= MIN_COMPARED_STEPS else 0.0
        )


class Cost:
    """Account of the time that recording takes, separately for the first steps and the later ones.

    :param inspected_steps: how many steps at the start are closely inspected.
    :param free: seconds of our work after those that still count as part of the first steps.
    :param budget: the share of the script's time that the later steps may take.
    """

    def __init__(self, own: OwnTime, inspected_steps: int, free: float = 0.0, budget: float | None = None) -> None:
        """Start the account now: the time until ``started`` is the start phase.

        :param own: measures our own work.
        """
        self._own, self._inspected_steps, self._free_seconds, self._budget = own, inspected_steps, free, budget
        #: When our work began; the seconds until the script's first line, and after its last.
        self._began = Moment.now()
        self._start_seconds = self._end_seconds = 0.0
        self._end_mark: Moment | None = None
        self._final_summary: CostSummary | None = None
        #: Whether a failure is explained in the running step, and was in the step before; the seconds of our work in
        #: such steps.
        self._is_diagnosis = self.charged_diagnosis = False
        self._diagnosis_seconds = 0.0
        #: How many steps after the first ones had no failure explained.
        self._later_steps = 0
        self._steps = self._first_steps = 0
        #: Seconds of our work before the running step.
        self._own_seconds_before = 0.0
        #: Nodes that had run with a hook before the running step.
        self._hooked_nodes_before = 0
        self._slowdown = SlowdownEstimate()
        #: Seconds of the last accounted step, or steps, without waiting.
        self.seconds = 0.0
        #: Seconds of our work in the first steps; seconds of the later ones, and of our work in them.
        self._first_seconds = self._later_seconds = self._later_own_seconds = 0.0
        #: When the waiting time is read next; at the last read: the waiting time, the seconds that the thread did not
        #: run during our work, and the seconds of our frequent work; since then, the script's own seconds in steps.
        (
            self._next_read_at,
            self._waited_at_read,
            self._stalled_at_read,
            self._sampled_at_read,
            self._script_seconds_since_read,
        ) = 0.0, waited(), 0.0, 0.0, 0.0
        #: Waiting during our work; and waiting in steps that is not yet subtracted from them.
        self._waited_in_own_work = self._waited_in_steps = 0.0

    @property
    def _own_seconds(self) -> float:
        """The seconds of our own work so far, without waiting for a processor."""
        own = self._own
        return own.clocked + own.counted - self._waited_in_own_work

    @property
    def own_seconds_of_step(self) -> float:
        """Return the seconds of our work since the last step was over."""
        return self._own_seconds - self._own_seconds_before

    def charge_to_diagnosis(self) -> None:
        """Charge the running step to the explanation of a failure."""
        self._is_diagnosis = True

    def started(self, startup: Startup | None) -> None:
        """End the start phase: the script is about to begin.

        The start is all time since `startup`, or else since this object was created.
        """
        if startup is not None:
            self._began = startup.began
        elsewhere = startup.script_s if startup is not None else 0.0
        self._start_seconds = max(self._began.seconds_until(Moment.now()) - elsewhere, 0.0)
        self._own_seconds_before = self._own_seconds  # counted until now as part of the start, not of the first step

    def mark_end(self) -> tuple[Moment, float]:
        """Return a mark of the moment when the script is over, for ``begin_end`` after the session has ended."""
        return Moment.now(), self._own_seconds

    def begin_end(self, mark: tuple[Moment, float]) -> None:
        """Begin the end phase at `mark`: the session has ended.

        Time since `mark` counts as the end, except the part that the last step accounts for.
        """
        if self._end_mark is None:
            self._end_mark, before = mark
            self._end_seconds = (
                before - self._own_seconds + (self.own_seconds_of_step if self._steps >= self._inspected_steps else 0.0)
            )

    @contextmanager
    def exclude_from_end(self) -> Iterator[None]:
        """Exclude the time inside the block, such as waiting for other processes, from the end."""
        begin = Moment.now()
        try:
            yield
        finally:
            self._end_seconds -= begin.seconds_until(Moment.now())

    def freeze(self) -> CostSummary:
        """Finish the end phase and return the final summary: ``took`` no longer changes."""
        self._final_summary = took = self.took
        return took

    def resume(self) -> None:
        """Resume after a pause: waiting during it belongs to no step."""
        self._waited_at_read, self._stalled_at_read = waited(), self._own.stalled
        self._sampled_at_read, self._script_seconds_since_read = self._own.sampled, 0.0

    def charge_steps(self, seconds: float, steps: int = 1) -> float:
        """Account for `steps` steps that took `seconds`; return the seconds of them that were our work."""
        before = self._script_seconds_since_read
        self._script_seconds_since_read += max(seconds - self.own_seconds_of_step, 0.0)
        was_read = self._read_waiting(_clock())
        mine = min(max(self.own_seconds_of_step, 0.0), seconds)  # samples may correct the account of the step before
        self._own_seconds_before = self._own_seconds
        lost = min(self._waited_in_steps, MAX_WAITING_FRACTION * (seconds - mine))
        self._waited_in_steps -= lost
        if was_read:  # short steps were read together: the next one loses at most the time that they can have waited
            self._waited_in_steps = min(self._waited_in_steps, before)
        self.seconds = seconds - lost
        closely = self._steps < self._inspected_steps
        recorded, self._hooked_nodes_before = self._own.nodes > self._hooked_nodes_before, self._own.nodes
        if not closely:
            mine += self._slowdown.add_step((self.seconds - mine) / steps, recorded)
            mine = min(mine, seconds)
        self._steps += steps
        self.charged_diagnosis, self._is_diagnosis = self._is_diagnosis, False
        first = closely or self._free_seconds > 0
        self._free_seconds -= 0.0 if closely else mine
        if first:
            self._first_steps = self._steps
        if self.charged_diagnosis:
            self._diagnosis_seconds += mine
        elif first:
            self._first_seconds += mine
        else:
            self._later_steps += steps
            self._later_seconds += self.seconds
            self._later_own_seconds += mine
        return mine

    def _read_waiting(self, now: float) -> bool:
        """Read the waiting time if it is due, and split it between our work and the script's.

        Returns whether it was read.
        """
        own = self._own
        stalled = max(own.stalled - self._stalled_at_read, 0.0)
        if now < self._next_read_at and stalled <= MAX_UNREAD_SECONDS:
            return False
        so_far = waited()
        self._next_read_at = now + max(MIN_READ_INTERVAL_S, READ_INTERVAL_RATIO * (_clock() - now))
        since, often, alone = (
            max(so_far - self._waited_at_read, 0.0),
            max(own.sampled - self._sampled_at_read, 0.0),
            self._script_seconds_since_read,
        )
        self._waited_at_read, self._stalled_at_read, self._sampled_at_read, self._script_seconds_since_read = (
            so_far,
            own.stalled,
            own.sampled,
            0.0,
        )
        clocked = min(stalled, since)
        # The rest was waited during the script's own work and our frequent work, in proportion to their durations.
        self._waited_in_own_work += clocked + ((since - clocked) * often / (often + alone) if often else 0.0)
        self._waited_in_steps += since
        return True

    @property
    def took(self) -> CostSummary:
        """The cost so far; after ``freeze``, the final one."""
        if self._final_summary is not None:
            return self._final_summary
        # Work before a first step was over, as in a script without steps, counts as part of the first steps.
        rest = self.own_seconds_of_step if self._steps < self._inspected_steps else 0.0
        now = Moment.now()
        end = 0.0 if self._end_mark is None else max(self._end_mark.seconds_until(now) + self._end_seconds, 0.0)
        return CostSummary(
            *(
                self._first_steps,
                self._first_seconds + rest,
                self._later_steps,
                self._later_seconds,
                self._later_own_seconds,
            ),
            explaining=self._diagnosis_seconds,
            start=self._start_seconds,
            end=end,
            elapsed=self._began.seconds_until(now),
            waited=max(now.waited - self._began.waited, 0.0),
            budget=self._budget,
        )
