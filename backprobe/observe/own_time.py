"""Measures the time that backprobe itself takes, separately from the script's.

Note [Own time]: work that happens a few times in a step is timed with a clock, from a mark. Work that
happens thousands of times is timed in a sample (``SampledWork``); each sample represents the occurrences since the last
one. The time that torch takes to call backprobe cannot be clocked here: it is measured on trivial calls (``overheads``)
and added for each call. Nothing is counted twice: a timed or frequent piece of work inside another is subtracted from
the outer one. Time in which other programs used the processor does not count: if the clock went on while this thread
did not run, the difference is noted separately (``stalled``), and subtracted as far as the thread waited for a
processor (``Cost``). If the thread waited for something else, such as a disk, the time counts as backprobe's. Very
short work is hardly ever interrupted and needs no such correction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

_clock, _ran = time.perf_counter, time.thread_time
#: A time, and the seconds clocked until then.
Mark = tuple[float, float]
#: The same, the seconds that this thread had run, and the seconds that it had not run during clocked work.
Begin = tuple[float, float, float, float]
#: Seconds: a thread that did not run for less than this has hardly waited for a processor; the scheduler's slice is
#: longer.
MIN_STALL_S = 2e-4


class SampledWork:
    """Frequent work of backprobe: each occurrence is timed while steps are inspected closely, otherwise a sample.

    The intervals between samples are random, so that they match no period of the script.

    :ivar left: occurrences until the next timed one.
    """

    #: The most that one sample counts, as a multiple of the mean: a longer one was interrupted.
    MAX_SAMPLE_RATIO = 30.0

    def __init__(self) -> None:
        """Start with no occurrences; the first one is timed."""
        self.left = self._gap = 1
        self._seconds = self._mean = 0.0
        self._measured = 0
        self._state = 12345

    def add(self, seconds: float, close: bool) -> None:
        """Add a sample of `seconds`, which represents the occurrences since the last sample, and choose the next one.

        :param close: every occurrence is timed now, so the sample stands for itself.
        """
        since = self._gap - self.left
        if close:
            self._seconds += seconds + (since - 1) * self._mean
        else:
            self._measured += 1
            if self._measured > 8:
                seconds = min(seconds, self.MAX_SAMPLE_RATIO * self._mean)
            self._mean += (seconds - self._mean) / min(self._measured, 256)
            self._seconds += since * seconds
        self._state = (1103515245 * self._state + 12345) % 2**31
        self.left = self._gap = 1 if close else 16 + (self._state >> 16) % 32

    @property
    def seconds(self) -> float:
        """Seconds of all occurrences so far; those since the last sample count as the mean."""
        return self._seconds + (self._gap - self.left) * self._mean


class OwnTime:
    """Adds up the seconds of a session's own work."""

    def __init__(self) -> None:
        """Start with no work."""
        #: Calls of torch functions that the recorder sees; entries into and exits from calls of modules.
        self.ops, self.enters, self.leaves = SampledWork(), SampledWork(), SampledWork()
        #: Backward calls of fast-path steps; functions of trackers around the steps of optimizers.
        self.fast_path_calls, self.step_hooks = SampledWork(), SampledWork()
        #: Seconds measured with a clock.
        self.clocked = 0.0
        #: Of these, seconds in which the thread did not run.
        self.stalled = 0.0
        #: When the outermost piece of work began that has not ended, and the clocked seconds then.
        self._unfinished: Mark | None = None
        #: Nodes that ran with a hook, and the extra seconds of each.
        self.nodes, self.per_node = 0, 0.0

    def mark(self) -> Mark:
        """Begin a piece of frequent work; ``often`` ends it."""
        return _clock(), self.clocked

    def begin(self) -> Begin:
        """Begin a piece of backprobe's work; ``since`` ends it."""
        now = _clock()
        if self._unfinished is None:
            self._unfinished = now, self.clocked
        return now, self.clocked, _ran(), self.stalled

    def since(self, begin: Begin) -> float:
        """End a piece of backprobe's own work that began at `begin`, and account for it; return its seconds."""
        seconds = _clock() - begin[0]
        if self._unfinished is not None and begin[0] == self._unfinished[0]:
            self._unfinished = None
        stalled = seconds - (_ran() - begin[2])
        self.clocked = begin[1] + seconds
        self.stalled = begin[3] + (stalled if stalled > MIN_STALL_S else 0.0)
        return seconds

    def ran(self, nodes: int, seconds: float, times: Sequence[float] = (), stalled: float = 0.0) -> None:
        """Account for hooks on `nodes` nodes that took `seconds`.

        :param times: when hooks were entered and left, in turn; the first is the start.
        :param stalled: seconds that the thread did not run meanwhile, in long hooks or between them.
        """
        self.nodes += nodes
        self.clocked += seconds
        if stalled > MIN_STALL_S:
            in_hooks, between_hooks = (
                sum(
                    long
                    for a, b in zip(times[at::2], times[at + 1 :: 2], strict=False)
                    if (long := b - a) > MIN_STALL_S
                )
                for at in (1, 0)
            )
            self.stalled += min(in_hooks, stalled * in_hooks / (in_hooks + between_hooks)) if in_hooks else 0.0

    def often(self, often: SampledWork, mark: Mark, elsewhere: float, close: bool) -> None:
        """End a piece of frequent work that began at `mark`. Work clocked inside it is subtracted.

        :param elsewhere: seconds since `mark` that were the script's, less the overhead that no clock sees.
        """
        often.add(max(_clock() - mark[0] - (self.clocked - mark[1]) - elsewhere, 0.0), close)

    @property
    def until_now(self) -> float:
        """Seconds of backprobe's work so far, with those of the piece of work that has not ended."""
        if self._unfinished is None:
            return self.clocked + self.counted
        began, clocked = self._unfinished
        return clocked + (_clock() - began) + self.counted

    @property
    def sampled(self) -> float:
        """Seconds of frequent work so far, as sampled; they include waiting."""
        frequent = self.ops, self.enters, self.leaves, self.fast_path_calls, self.step_hooks
        return sum(work.seconds for work in frequent)

    @property
    def counted(self) -> float:
        """The same, plus the extra time of nodes with hooks."""
        return self.sampled + self.nodes * self.per_node
