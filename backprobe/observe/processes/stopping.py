"""Stops a run after an alarm: sends SIGINT, as Ctrl-C does, to each of its processes once.

Several ranks mostly raise an alarm in the same step. A second SIGINT would reach a process that is already shutting
down, and its findings would be lost. So the first process that stops the run interrupts all others on its machine, and
the others do nothing.
"""

from __future__ import annotations

import _thread
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...basics.terminal import say
from ...store import parts
from ..alarm_dispatcher import said
from .child_config import ChildConfig
from .signals import interrupt

if TYPE_CHECKING:
    from ...findings.levels.alarms import Alarm


def stop_for(alarm: Alarm, rank: int | None, config: ChildConfig) -> None:
    """Interrupt the running processes of the run on this machine, and then this process.

    :param rank: of this process.
    :param config: the configuration of the run's child processes.
    """
    if os.name == "posix" and not _is_first(config.folder):
        return
    where = "" if rank is None else f" (rank {rank})"
    say(f"backprobe: the run is stopped for {alarm.kind}: {said(alarm)}{where}", sys.stderr)
    if os.name == "posix":  # on Windows, this signal kills a process at once
        others = parts.read_parts(config.folder).values()
        going = {one.pid: one.start_ticks for one in others if not one.over and one.machine == platform.node()}
        for pid, ticks in sorted({config.first: config.first_ticks, **going}.items()):
            if pid != os.getpid():
                interrupt(pid, ticks)
    _thread.interrupt_main()  # the script may save what it has


def _is_first(folder: Path) -> bool:
    """Return whether no process of this machine has stopped the run yet.

    Also returns ``True`` if the marker file cannot be written.
    """
    try:
        os.close(os.open(folder / f".stopped-{platform.node()}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except OSError:
        pass
    return True
