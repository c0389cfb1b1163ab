"""Records whether this process, one of several ranks, waits for the other ranks."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

from ...records import RankSeen, RankWait, Step
from .. import wall_clock
from ..events import Tracker
from ..tracker_context import TrackerContext
from .collective_wait import Waiting, in_use, of_collective, rank

#: Number of optimizer steps whose callers are recorded.
FEW = 4


class Ranks(Tracker):
    """Tracker that records this process as a rank."""

    def __init__(self, scene: TrackerContext) -> None:
        self._scene, self._steps = scene, 0

    def forward_begins(self) -> None:
        """Start to watch for waits, as soon as torch.distributed is in use."""
        scene = self._scene
        if scene.waiting is None:
            if scene.whole and in_use():
                scene.waiting = Waiting(scene.frames, say=not scene.settings.quiet)
                scene.waiting.start()
        elif scene.waiting.rank is None:  # a short run may end before the thread's first inspection
            scene.waiting.rank = rank()

    def step_over(self, step: Step) -> None:
        waiting = self._scene.waiting
        if waiting is not None:
            waiting.step = lambda: self._scene.steps.index
            waiting.step_over(step.index)

    def optimizer_begins(self, optimizer: Any) -> None:
        """Record where the optimizer is stepped: the run may end before the thread has inspected the stack often."""
        if self._scene.waiting is not None and self._steps < FEW:
            self._steps += 1
            self._scene.waiting.note_callers(sys._getframe(1))

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


def _after_one(error: BaseException) -> bool:
    """Return whether `error` was raised because of, or while handling, a failed collective."""
    seen: list[BaseException] = []
    before = error.__cause__ or error.__context__
    while before is not None and before not in seen:
        if of_collective(before):
            return True
        seen.append(before)
        before = before.__cause__ or before.__context__
    return False


def ended_waits(waiting: Waiting, scene: TrackerContext, failed: bool) -> tuple[RankWait, ...]:
    """Return the long waits of a process, and the wait that ended the process even if it was short."""
    waits, error = waiting.records(failed), scene.raised
    if error is None:
        return waits
    site = scene.frames.site_of_traceback(error.__traceback__)
    if not of_collective(error):
        elsewhere = isinstance(error, Exception) and site is not None and not _after_one(error)
        if elsewhere and waits and waits[-1].ended == "raised" and waits[-1].site != site:
            return (*waits[:-1], replace(waits[-1], ended="returned"))  # the error came soon after it
        return waits
    if waits and waits[-1].ended == "raised":
        if site is None or waits[-1].site == site:
            return waits
        waits = (*waits[:-1], replace(waits[-1], ended="returned"))  # an unseen later wait raised
    called = next((one for one in reversed(waiting.collectives()) if not one.over and one.site == site), None)
    if called is None:
        return (*waits, RankWait("a collective operation", site, wall_clock.now(), 0.0, "raised"))
    took, known = wall_clock.now() - called.began, (called.inside, called.group, called.number, called.inputs)
    return (*waits, RankWait(called.op, site, called.began, took, "raised", *known))
