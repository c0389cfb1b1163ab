"""Wall-clock time for records that are compared with those of other processes, and for durations.

Note [Monotonic wall clock]: the system clock may be set back or forward (NTP, a user, a virtual machine that wakes
up). Durations measured with it can be negative, or hours too long. So the system clock is read once, and the monotonic
clock gives the time since then.
"""

from __future__ import annotations

import time

_OFFSET = time.time() - time.monotonic()


def now() -> float:
    """Return the seconds since 1970. Based on the system clock at the start of this process; never goes back."""
    return _OFFSET + time.monotonic()
