"""Whether this process, one of several, waits for the others."""

from __future__ import annotations

import os
import time

from ...records import RankSeen, RankWait
from ..events import Tracker
from ..scene import Scene
from .waiting import Waiting, in_use, of_collective, rank


class Ranks(Tracker):
    """This process as a rank."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._waiting: Waiting | None = None

    def forward_begins(self) -> None:
        """Look after waits, from where there may be some."""
        if self._waiting is None and self._scene.whole and in_use():
            self._waiting = Waiting(self._scene.frames, say=not self._scene.settings.quiet)
            self._waiting.rank = rank()
            self._waiting.start()

    def ended(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()

    def records(self) -> tuple[RankSeen, ...]:
        waiting, error = self._waiting, self._scene.raised
        if waiting is None:
            return ()
        waits = waiting.records(of_collective(error))
        if error is not None and of_collective(error) and not any(w.ended == "raised" for w in waits):
            site = self._scene.frames.site_of_traceback(error.__traceback__)
            waits = (*waits, RankWait("a collective operation", site, time.time(), 0.0, "raised"))
        if error is None:
            return (RankSeen(waiting.rank, os.getpid(), waits, waiting.trail()),)
        text = f"{type(error).__name__}: {error}"[:500]
        raised, step = self._scene.frames.site_of_traceback(error.__traceback__), self._scene.steps.index
        return (RankSeen(waiting.rank, os.getpid(), waits, waiting.trail(), True, text, raised=raised, step=step),)
