"""Seconds of our own work, told from the script's.

Note [What watching takes]: what happens a few times a step is measured with a clock, from a mark. What
happens thousands of times is measured in some of its times (``Often``), each of which stands for those since the last
one. What torch spends on calling us is seen by no clock of ours: it is measured on trivial calls (``overheads``) and
added for each call. Nothing is counted twice: what is clocked inside something that is clocked, or that happens often,
is taken off there. What others use the processor for is nobody's: where a clock of ours went on while this thread
stood, that is noted apart (``stood``), and taken off as far as the thread waited for a processor then (``Cost``): what
it stood for otherwise, as for a disk, is ours. What is so short that it is hardly ever interrupted needs no such look.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

_clock, _ran = time.perf_counter, time.thread_time
#: A moment, and the seconds clocked until then.
Mark = tuple[float, float]
#: The same, the seconds that this thread had run, and those that it had stood in what was clocked.
Begin = tuple[float, float, float, float]
#: Seconds: who stands no longer has hardly waited for a processor. It is handed on for longer.
BRIEF = 2e-4


class Often:
    """Something of ours that happens often: each of its times is measured while steps are looked at closely, else some,
    at intervals that fit no period of the script's.

    :ivar left: times until the next that is measured.
    """

    #: A time that takes so many times the mean was interrupted: it counts as that much.
    MOST = 30.0

    def __init__(self) -> None:
        self.left = self._gap = 1
        self._seconds = self._mean = 0.0
        self._measured = 0
        self._state = 12345

    def add(self, seconds: float, close: bool) -> None:
        """One of the times since the last that was measured took `seconds`."""
        since = self._gap - self.left
        if close:
            self._seconds += seconds + (since - 1) * self._mean
        else:
            self._measured += 1
            if self._measured > 8:
                seconds = min(seconds, self.MOST * self._mean)
            self._mean += (seconds - self._mean) / min(self._measured, 256)
            self._seconds += since * seconds
        self._state = (1103515245 * self._state + 12345) % 2**31
        self.left = self._gap = 1 if close else 16 + (self._state >> 16) % 32

    @property
    def seconds(self) -> float:
        """All times so far, those since the last that was measured at the mean."""
        return self._seconds + (self._gap - self.left) * self._mean


class OwnTime:
    """Adds up the seconds of a session's own work."""

    def __init__(self) -> None:
        #: Calls of torch's functions, as the eye sees them; calls of modules, on the way in and out.
        self.ops, self.enters, self.leaves = Often(), Often(), Often()
        #: Backward calls of steps that pass.
        self.passes = Often()
        #: What was measured with a clock.
        self.clocked = 0.0
        #: Of that, seconds in which the thread stood.
        self.stood = 0.0
        #: Nodes that ran with a hook, and the seconds that each took longer for it.
        self.nodes, self.per_node = 0, 0.0

    def mark(self) -> Mark:
        """Something of ours begins that happens often: its end is told with ``often``."""
        return _clock(), self.clocked

    def begin(self) -> Begin:
        """Our work begins: its end is told with ``since``."""
        return _clock(), self.clocked, _ran(), self.stood

    def since(self, begin: Begin) -> float:
        """All since `begin` was ours, also what was clocked in it: the seconds."""
        seconds = _clock() - begin[0]
        stood = seconds - (_ran() - begin[2])
        self.clocked = begin[1] + seconds
        self.stood = begin[3] + (stood if stood > BRIEF else 0.0)
        return seconds

    def ran(self, nodes: int, seconds: float, times: Sequence[float] = (), stood: float = 0.0) -> None:
        """Hooks on `nodes` nodes took `seconds`.

        :param times: when one was entered and left, in turn; the first is the start.
        :param stood: seconds that the thread stood meanwhile, in hooks or between them: in those that took long.
        """
        self.nodes += nodes
        self.clocked += seconds
        if stood > BRIEF:
            ours, between = (
                sum(long for a, b in zip(times[at::2], times[at + 1 :: 2], strict=False) if (long := b - a) > BRIEF)
                for at in (1, 0)
            )
            self.stood += min(ours, stood * ours / (ours + between)) if ours else 0.0

    def often(self, often: Often, mark: Mark, elsewhere: float, close: bool) -> None:
        """One time of `often` began at `mark`; `elsewhere`: seconds since then that were not ours, less those that no
        clock sees. What was clocked in it stays what it is."""
        often.add(max(_clock() - mark[0] - (self.clocked - mark[1]) - elsewhere, 0.0), close)

    @property
    def sampled(self) -> float:
        """Seconds of what happens often, so far, as they were measured: what was waited in them is in them."""
        return self.ops.seconds + self.enters.seconds + self.leaves.seconds + self.passes.seconds

    @property
    def counted(self) -> float:
        """The same, and what nodes took longer for their hooks."""
        return self.sampled + self.nodes * self.per_node
