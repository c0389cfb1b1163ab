"""The processes of a script that are watched: each leaves a part of the run (Note [Parts])."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...records import RankSeen, Unseen
from ..events import Tracker
from ..session import Session
from .attach import begin_after_fork, begin_child
from .child_launch import ChildLaunch
from .stopping import stop_for

if TYPE_CHECKING:
    from ...findings.levels import Alarm


class Children(Tracker):
    """The side of the process that ``backprobe run`` started, once it has imported torch.

    :param launch: what tells processes that they belong to the run.
    """

    def __init__(self, session: Session, launch: ChildLaunch) -> None:
        self._session: Session | None = session
        self._launch = launch
        self._pid = os.getpid()
        begin_after_fork(self, self._forked, session.frames.is_user)

    def _forked(self) -> None:
        """In a child, after ``fork``."""
        session = self._session
        if session is None or os.getpid() == self._pid:
            return
        session.leave()
        self._session = None
        begin_child(self._launch.told)

    def stop_for(self, alarm: Alarm, rank: int | None) -> None:
        """Interrupt all processes of the run."""
        stop_for(alarm, rank, self._launch.told)

    def records(self) -> tuple[RankSeen, ...]:
        """What the processes that ended, or go on, have left."""
        return self._launch.seen()

    def unseen(self) -> list[Unseen]:
        return self._launch.unseen()

    def stop(self) -> None:
        """The script has ended: what is forked now is none of its processes."""
        if os.getpid() == self._pid:
            self._session = None
