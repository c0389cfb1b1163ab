"""A run is stopped as Ctrl-C on a terminal stops it: each of its processes is interrupted."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...store import parts
from ...trust import is_there
from ..alarmed import said

if TYPE_CHECKING:
    from ...findings.levels import Alarm


def stop_for(alarm: Alarm, rank: int | None, folder: Path | None, first: int) -> None:
    """Interrupt the processes of the run in `folder` that go on on this machine, and this one.

    :param rank: of this process.
    :param first: the process that started the others; it may be this one.
    """
    where = "" if rank is None else f" (rank {rank})"
    print(f"backprobe: the run is stopped for {alarm.kind}: {said(alarm)}{where}", file=sys.stderr, flush=True)
    if os.name == "posix":  # elsewhere a process that is sent this signal is gone at once
        others = parts.read_parts(folder).values() if folder is not None else ()
        going = {one.pid for one in others if not one.over and is_there(one.pid, one.machine)}
        for pid in sorted({*going, first} - {os.getpid()}):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGINT)
    _thread.interrupt_main()  # the script may save what it has
