"""Signals to processes whose numbers were read from a file or a variable: none before it is known whose they are.

A process may be gone and its number another's, and a folder of runs may be shared. So who writes a number down writes
beside it when the process started, as the kernel counts it: no later process has both.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks of the kernel since the machine did; ``None`` where that cannot be told."""
    if pid <= 0:
        return None
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def interrupt(pid: int, ticks: int | None) -> bool:
    """Interrupt a process as Ctrl-C does, if it is ours and the one that started at `ticks`; whether it was."""
    if not isinstance(pid, int) or pid <= 0 or ticks is None:
        return False
    try:
        held = os.pidfd_open(pid)  # from here on the number means this process
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
