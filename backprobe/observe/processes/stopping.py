"""A run is stopped as Ctrl-C on a terminal stops it: each of its processes is interrupted, once.

An alarm is mostly one of several ranks in the same step. A second interruption would meet a process that is already
coming to its end, and what it has found would be lost. So the first one interrupts all others on its machine, and the
others leave that to it.
"""

from __future__ import annotations

import _thread
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...store import parts
from ...terminal import say
from ..alarm_dispatcher import said
from .child_config import ChildConfig
from .signals import interrupt

if TYPE_CHECKING:
    from ...findings.levels import Alarm


def stop_for(alarm: Alarm, rank: int | None, told: ChildConfig) -> None:
    """Interrupt the processes of a run that go on on this machine, and this one.

    :param rank: of this process.
    :param told: what the processes of the run are told.
    """
    if os.name == "posix" and not _is_first(told.folder):
        return
    where = "" if rank is None else f" (rank {rank})"
    say(f"backprobe: the run is stopped for {alarm.kind}: {said(alarm)}{where}", sys.stderr)
    if os.name == "posix":  # elsewhere a process that is sent this signal is gone at once
        others = parts.read_parts(told.folder).values()
        going = {one.pid: one.start_ticks for one in others if not one.over and one.machine == platform.node()}
        for pid, ticks in sorted({told.first: told.first_ticks, **going}.items()):
            if pid != os.getpid():
                interrupt(pid, ticks)
    _thread.interrupt_main()  # the script may save what it has


def _is_first(folder: Path) -> bool:
    """Whether no process of this machine has stopped the run yet. Where that cannot be noted, each does."""
    try:
        os.close(os.open(folder / f".stopped-{platform.node()}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except OSError:
        pass
    return True
