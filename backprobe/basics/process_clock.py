"""Reads how long this process has run and waited. Needs no torch, so that it can run before torch is imported."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

_clock = time.perf_counter
_SCHEDULED = "/proc/thread-self/schedstat"


def process_status(pid: int) -> list[str]:
    """Return the fields of Linux's status of a process, from its state on: 19 is its start, in ticks of the kernel.

    :raises OSError: if there is no such process or no such file.
    """
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def waited() -> float:
    """Return the seconds that this thread waited for a processor; 0 if the system does not report them."""
    try:
        file = os.open(_SCHEDULED, os.O_RDONLY)
        try:
            return int(os.read(file, 128).split()[1]) / 1e9
        finally:
            os.close(file)
    except (OSError, ValueError, IndexError):
        return 0.0


class Moment(NamedTuple):
    """A point in time: seconds on the clock, and seconds that this thread had waited for a processor until then."""

    clock: float
    waited: float

    @classmethod
    def now(cls) -> Moment:
        """Return the present moment."""
        return cls(_clock(), waited())

    def seconds_until(self, later: Moment) -> float:
        """Return the seconds from here to `later`, without those that the thread waited for a processor."""
        return max(later.clock - self.clock - max(later.waited - self.waited, 0.0), 0.0)


class Startup(NamedTuple):
    """The start of a recorded process.

    :ivar began: when the first of backprobe's own work began.
    :ivar script_s: seconds since then that were the script's own: its lines up to its import of torch, and that import.
    """

    began: Moment
    script_s: float = 0.0


#: When this module was imported. Of a process that was started for a command that is when the command began.
IMPORTED = Moment.now()
