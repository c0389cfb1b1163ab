"""Tells the processes that a script starts which run they belong to. No torch."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ...records import RankSeen, Unseen
from ...store import job, parts
from .. import wall_clock
from .bootstrap.backprobe_following import Following, unwatched
from .child_config import ChildConfig

#: Seconds that other ranks have to come to their end after the process that ``backprobe run`` started, from when one of
#: them was last seen to compute; and in all. How much of a processor that is.
LAST, LONGEST, COMPUTES = 10.0, 120.0, 0.05


class ChildLaunch:
    """The environment that child processes start with, from ``start`` to ``stop``.

    :param folder: of the run; ``None`` if it is not kept: the parts of children are then in a temporary folder.
    :param told_in: what children are told, given that folder.
    :param equals: this process is one of equal parts of the run, as its children are: what they leave is not its own.
    """

    def __init__(self, folder: Path | None, told_in: Callable[[Path], ChildConfig], equals: bool = False) -> None:
        self._is_temporary, self._equals = folder is None, equals
        self.folder = (folder or Path(tempfile.mkdtemp(prefix="backprobe-"))).absolute()
        self.told = told_in(self.folder)
        self._following: Following | None = None
        self._pid = os.getpid()

    def start(self) -> None:
        """Processes that begin from now on are told."""
        self._following = Following(self.told.text(), lambda pid: unwatched(str(self.folder), pid))
        self._following.start()

    def stop(self) -> None:
        """No more of them are. What they left is deleted if the run is not kept."""
        if os.getpid() != self._pid:
            return
        if self._following is not None:
            self._following.stop()
            self._following = None
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def of_parts(self) -> Path | None:
        """The folder of the run that children are parts of, if it is that of this process."""
        return None if self._equals else self.folder

    def wait(self, ranked: bool, longest: float = LONGEST) -> None:
        """Ranks that nobody waits for, as Lightning starts them, come to their end when this one does: they have a
        while for that, of `longest` seconds.

        :param ranked: this process is a rank itself.
        """
        begin = computed = time.monotonic()
        said = wall_clock.now()
        while self.of_parts is not None and (now := time.monotonic()) < min(computed + LAST, begin + longest):
            _reap()
            seen = parts.read_parts(self.of_parts).values()
            # Beside a rank, one that has not said its own is waited for too: it may not have had the time.
            going = [one for one in seen if (ranked or one.rank is not None) and job.goes_on(one)]
            if not going:
                break
            news = [one for one in going if one.said > said and (one.busy or 0.0) > COMPUTES]
            if news:
                computed, said = now, max(one.said for one in news)
            time.sleep(0.1)

    def seen(self) -> tuple[RankSeen, ...]:
        """What the processes that ended, or go on, have left."""
        if self.of_parts is None:
            return ()
        _reap()
        return job.others(self.of_parts)

    def unseen(self) -> list[Unseen]:
        """How many processes could not be watched."""
        return parts.unwatched(self.of_parts) if self.of_parts is not None else []


def _reap() -> None:
    """Take note of children that are gone."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    with contextlib.suppress(Exception):
        getattr(multiprocessing, "active_children", tuple)()
