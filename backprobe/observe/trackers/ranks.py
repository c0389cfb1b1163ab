"""Records whether this process, one of several ranks, waits for the other ranks."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from ...records import RankSeen, RankWait, Step
from .. import wall_clock
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .collective_wait import CollectiveWaitWatcher, in_use, is_collective_error, rank

if TYPE_CHECKING:
    import torch

#: Maximum number of optimizer steps whose callers are recorded.
MAX_STEPS_WITH_CALLERS = 4


class Ranks(Tracker):
    """Tracker that records this process as a rank."""

    def __init__(self, context: TrackerContext) -> None:
        self._context, self._steps = context, 0

    def forward_begins(self) -> None:
        """Start to watch for waits, as soon as torch.distributed is in use."""
        context = self._context
        if context.waiting is None:
            if context.whole and in_use():
                waiting = CollectiveWaitWatcher(context.frames, say=not context.settings.quiet)
                context.watch_waits(waiting)
                waiting.start()
        elif context.waiting.rank is None:  # a short run may end before the thread's first inspection
            context.waiting.rank = rank()

    def step_ended(self, step: Step) -> None:
        """Tell the watcher of waits that a step is over."""
        waiting = self._context.waiting
        if waiting is not None:
            waiting.step = lambda: self._context.steps.index
            waiting.step_ended(step.index)

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Record where the optimizer is stepped: the run may end before the thread has inspected the stack often."""
        if self._context.waiting is not None and self._steps < MAX_STEPS_WITH_CALLERS:
            self._steps += 1
            self._context.waiting.note_callers(sys._getframe(1))

    def ended(self) -> None:
        """Stop the watcher of waits."""
        if self._context.waiting is not None:
            self._context.waiting.stop()

    def records(self) -> tuple[RankSeen, ...]:
        """Return the state of this process as a rank, if waits were watched."""
        waiting, error = self._context.waiting, self._context.raised
        if waiting is None:
            return ()
        waits = ended_waits(waiting, self._context, error is not None)
        text = "" if error is None else str(error)[:500]
        return (RankSeen(waiting.rank, os.getpid(), waits, waiting.trail(), True, text),)


def _is_from_collective_error(error: BaseException) -> bool:
    """Return whether `error` was raised because of, or while handling, a failed collective."""
    seen: list[BaseException] = []
    before = error.__cause__ or error.__context__
    while before is not None and before not in seen:
        if is_collective_error(before):
            return True
        seen.append(before)
        before = before.__cause__ or before.__context__
    return False


def ended_waits(waiting: CollectiveWaitWatcher, context: TrackerContext, failed: bool) -> tuple[RankWait, ...]:
    """Return the long waits of a process, and the wait that ended the process even if it was short."""
    waits, error = waiting.records(failed), context.raised
    if error is None:
        return waits
    site = context.frames.site_of_traceback(error.__traceback__)
    if not is_collective_error(error):
        elsewhere = isinstance(error, Exception) and site is not None and not _is_from_collective_error(error)
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
