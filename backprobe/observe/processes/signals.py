"""Sends signals to other processes of the run, after checking that the PID is still theirs.

The process may have exited and its PID may have been reused, and folders of runs may be shared. So a PID is stored
together with the start time of the process as the kernel counts it: no later process has both.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ...basics.process_clock import process_status


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in kernel ticks since boot; ``None`` if unknown."""
    if pid <= 0:
        return None
    try:
        return int(process_status(pid)[19])
    except (OSError, IndexError, ValueError):
        return None


def interrupt(pid: int, ticks: int | None) -> bool:
    """Send SIGINT to process `pid` if this user owns it and it started at `ticks`.

    Returns whether the signal was sent.
    """
    if not isinstance(pid, int) or pid <= 0 or ticks is None:
        return False
    try:
        held = os.pidfd_open(pid)  # from here on, the descriptor means this very process
    except (AttributeError, OSError):
        held = None
    try:
        if start_ticks(pid) != ticks or Path(f"/proc/{pid}").stat().st_uid != os.getuid():
            return False
        if held is not None:
            signal.pidfd_send_signal(held, signal.SIGINT)
        else:
            os.kill(pid, signal.SIGINT)
        return True
    except OSError:
        return False
    finally:
        if held is not None:
            os.close(held)
