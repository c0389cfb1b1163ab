"""The processes that a script starts: each is told to watch itself, and leaves a part of the run (Note [Parts])."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...records import RankSeen, Unseen
from ...store import job, parts
from ..events import Tracker
from ..session import Session
from .attach import begin_after_fork, begin_child
from .bootstrap.backprobe_following import Following, unwatched
from .stopping import stop_for
from .told import Told

if TYPE_CHECKING:
    from ...findings.levels import Alarm

#: Seconds that other ranks have to come to their end after the process that ``backprobe run`` started, from when one of
#: them was last seen to compute; and in all. How much of a processor that is.
LAST, LONGEST, COMPUTES = 10.0, 120.0, 0.05


class Children(Tracker):
    """The side of the process that ``backprobe run`` started.

    :param folder: of the run; a folder for temporary files where it is not kept.
    :param limit: bytes that each of them may write.
    :param tracking: trackers, globs on curves, and what the run is called there.
    :param alarms: kinds of alarms that end the run, and the function that is told of each, as ``MODULE:FUNCTION``.
    """

    def __init__(
        self,
        session: Session,
        folder: Path | None = None,
        limit: int = 256 << 20,
        tracking: tuple[tuple[str, ...], tuple[str, ...], str] = ((), (), ""),
        alarms: tuple[tuple[str, ...], str] = ((), ""),
    ) -> None:
        self._session: Session | None = session
        self._temporary = folder is None
        self._folder, self._limit, self._tracking, self._alarms = folder, limit, tracking, alarms
        self._told: Told | None = None
        self._following: Following | None = None
        self._pid = os.getpid()
        #: Told by the folder of the run itself: it is a part of it, as they are.
        self.equals = False

    def start(self) -> None:
        """Watch the processes that begin from now on."""
        session = self._session
        assert session is not None
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="backprobe-"))
        folder = self._folder.absolute()
        self._told = Told(
            *(folder, session.settings, session.frames.own, self._limit, *self._tracking, *self._alarms), os.getpid()
        )
        self._following = Following(self._told.text(), lambda pid: unwatched(str(folder), pid))
        self._following.start()
        begin_after_fork(self, self._forked, session.frames.is_user)

    def _forked(self) -> None:
        """In a child, after ``fork``."""
        session, told = self._session, self._told
        if session is None or told is None or os.getpid() == self._pid:
            return
        session.leave()
        self._session = None
        begin_child(told)

    @property
    def folder(self) -> Path | None:
        """Where their parts are, if any were told that they belong to this run."""
        return None if self.equals else self._folder

    def wait(self, longest: float = LONGEST) -> None:
        """Ranks that nobody waits for, as Lightning starts them, come to their end when this one does: they have a
        while for that, of `longest` seconds."""
        watching = self._session.scene.waiting if self._session is not None else None
        ranked = watching is not None and watching.rank is not None
        begin = computed = time.monotonic()
        said = time.time()
        while self.folder is not None and (now := time.monotonic()) < min(computed + LAST, begin + longest):
            _reap()
            seen = parts.read_parts(self.folder).values()
            # Beside a rank, one that has not said its own is waited for too: it may not have had the time.
            going = [one for one in seen if (ranked or one.rank is not None) and job.goes_on(one)]
            if not going:
                break
            news = [one for one in going if one.said > said and (one.busy or 0.0) > COMPUTES]
            if news:
                computed, said = now, max(one.said for one in news)
            time.sleep(0.1)

    def stop_for(self, alarm: Alarm, rank: int | None) -> None:
        """Interrupt all processes of the run."""
        stop_for(alarm, rank, self._folder, self._pid)

    def records(self) -> tuple[RankSeen, ...]:
        """What the processes that ended, or go on, have left."""
        if self._folder is None or self.equals:
            return ()
        _reap()
        return job.others(self._folder)

    def unseen(self) -> list[Unseen]:
        return parts.unwatched(self._folder) if self._folder is not None and not self.equals else []

    def stop(self) -> None:
        """No more processes are watched. What they left is gone where the run is not kept."""
        if os.getpid() != self._pid:
            return
        if self._following is not None:
            self._following.stop()
        if self._temporary and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._session = self._told = self._following = None


def _reap() -> None:
    """Take note of children that are gone."""
    import multiprocessing

    with contextlib.suppress(Exception):
        multiprocessing.active_children()
