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

    def forward_begins(self) -> None:
        """Look after waits, from where there may be some."""
        scene = self._scene
        if scene.waiting is None:
            if scene.whole and in_use():
                scene.waiting = Waiting(scene.frames, say=not scene.settings.quiet)
                scene.waiting.start()
        elif scene.waiting.rank is None:  # a short run may be over before the thread looks
            scene.waiting.rank = rank()

    def ended(self) -> None:
        if self._scene.waiting is not None:
            self._scene.waiting.stop()

    def records(self) -> tuple[RankSeen, ...]:
        waiting, error = self._scene.waiting, self._scene.raised
        if waiting is None:
            return ()
        waits = ended_waits(waiting, self._scene, error is not None)
        text = "" if error is None else str(error)[:500]
        return (RankSeen(waiting.rank, os.getpid(), waits, waiting.trail(), True, text),)


def ended_waits(waiting: Waiting, scene: Scene, failed: bool) -> tuple[RankWait, ...]:
    """The long waits of a process, and the one that ended it however short it was."""
    waits, error = waiting.records(failed), scene.raised
    if error is not None and of_collective(error) and not any(w.ended == "raised" for w in waits):
        site = scene.frames.site_of_traceback(error.__traceback__)
        waits = (*waits, RankWait("a collective operation", site, time.time(), 0.0, "raised"))
    return waits
