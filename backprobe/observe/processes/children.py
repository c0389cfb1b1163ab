"""The child processes of a script: each writes a part of the run (Note [Parts])."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...records import RankSeen, Unseen
from ..session import Session
from ..tracker import Tracker
from .attach import begin_after_fork, begin_child
from .child_launch import ChildLaunch
from .stopping import stop_for

if TYPE_CHECKING:
    from ...findings.levels.alarms import Alarm


class Children(Tracker):
    """The parent's side: runs in the process that ``backprobe run`` started, once it has imported torch.

    :param launch: passes the run's configuration to child processes.
    """

    def __init__(self, session: Session, launch: ChildLaunch) -> None:
        """Follow the forks of this process from now on."""
        self._session: Session | None = session
        self._launch = launch
        self._pid = os.getpid()
        begin_after_fork(self, self._forked, session.forward.frames.is_user)

    def _forked(self) -> None:
        """In a process that the script has forked: stop the parent's session, and observe the process as one of its
        own.
        """
        session = self._session
        if session is None or os.getpid() == self._pid:
            return
        session.leave()
        self._session = None
        begin_child(self._launch.config)

    def stop_for(self, alarm: Alarm, rank: int | None) -> None:
        """Interrupt all processes of the run."""
        stop_for(alarm, rank, self._launch.config)

    def records(self) -> tuple[RankSeen, ...]:
        """Return the state of each process of the run, ended or running."""
        return self._launch.seen()

    def unseen(self) -> list[Unseen]:
        """Return how many processes could not be observed."""
        return self._launch.unseen()

    def stop(self) -> None:
        """Stop following forks: the script has ended."""
        if os.getpid() == self._pid:
            self._session = None
