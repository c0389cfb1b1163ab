"""The time of day, for records that are compared with those of other processes, and that durations are taken from.

Note [A clock that goes forward]: the system clock is set back and forth (NTP, a person, a virtual machine that wakes).
What is measured with it comes out negative, or as hours. So it is read once, and the monotonic clock tells the rest.
"""

from __future__ import annotations

import time

_OFFSET = time.time() - time.monotonic()


def now() -> float:
    """Seconds since 1970, by the system's clock as it was when this process began: it never goes back."""
    return _OFFSET + time.monotonic()
