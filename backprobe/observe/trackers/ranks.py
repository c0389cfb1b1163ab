"""Processes that belong together: whether ranks wait for each other, and what the children of this one left."""

from __future__ import annotations

import os
import time

from ...records import RankSeen, RankWait
from ...source.frames import Frames
from ..processes.children import Children
from .waiting import Waiting, in_use, of_collective


class Ranks:
    """This process as a rank, and the processes that it starts."""

    def __init__(self, frames: Frames, say: bool) -> None:
        self._frames, self._say = frames, say
        self._waiting: Waiting | None = None
        #: Processes that the script starts, where they are watched.
        self.children: Children | None = None
        #: What the script raised.
        self.raised: BaseException | None = None

    def forward_begins(self) -> None:
        """Look after waits, from where there may be some."""
        if self._waiting is None and self.children is not None and in_use():
            self._waiting = Waiting(self._frames, say=self._say)
            self._waiting.start()

    def stop(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()

    def records(self) -> tuple[RankSeen, ...]:
        found = self.children.records() if self.children is not None else ()
        waiting, error = self._waiting, self.raised
        if waiting is None:
            return found
        waits = waiting.records(error is not None)
        if error is not None and of_collective(error) and not any(w.ended == "raised" for w in waits):
            site = self._frames.site_of_traceback(error.__traceback__)
            waits = (*waits, RankWait("a collective operation", site, time.time(), 0.0, "raised"))
        text = "" if error is None else str(error)[:500]
        return (RankSeen(waiting.rank, os.getpid(), waits, waiting.trail(), True, text), *found)
