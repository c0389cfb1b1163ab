"""A run is stopped as Ctrl-C on a terminal stops it: each of its processes is interrupted, once.

An alarm is mostly one of several ranks in the same step. A second interruption would meet a process that is already
coming to its end, and what it has found would be lost. So the first one interrupts all others on its machine, and the
others leave that to it.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import platform
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...store import parts
from ...terminal import say
from ...trust import is_there
from ..alarmed import said

if TYPE_CHECKING:
    from ...findings.levels import Alarm


def stop_for(alarm: Alarm, rank: int | None, folder: Path | None, first: int) -> None:
    """Interrupt the processes of the run in `folder` that go on on this machine, and this one.

    :param rank: of this process.
    :param first: the process that started the others; it may be this one.
    """
    if os.name == "posix" and folder is not None and not _is_first(folder):
        return
    where = "" if rank is None else f" (rank {rank})"
    say(f"backprobe: the run is stopped for {alarm.kind}: {said(alarm)}{where}", sys.stderr)
    if os.name == "posix":  # elsewhere a process that is sent this signal is gone at once
        others = parts.read_parts(folder).values() if folder is not None else ()
        going = {one.pid for one in others if not one.over and is_there(one.pid, one.machine)}
        for pid in sorted({*going, first} - {os.getpid()}):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGINT)
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
