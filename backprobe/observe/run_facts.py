"""Gathers the facts of a run from the parts of its session: for records that concern the whole run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..records import Facts, Stopped, Unseen, Watched
from ..source.excerpts import sources
from ..torch_internals.facts import missing
from .backward.calls import BackwardCalls
from .events import Events
from .forward.observers import ForwardObservers
from .schedule.settings import Settings
from .schedule.step_schedule import StepSchedule
from .statistics.loss_growth import LossHistory
from .tracker import Tracker


class RunFacts:
    """The facts that are known of a run so far, and counts of what could not be observed."""

    def __init__(
        self,
        settings: Settings,
        forward: ForwardObservers,
        schedule: StepSchedule,
        calls: BackwardCalls,
        events: Events,
        losses: LossHistory,
    ) -> None:
        """Gather facts from the parts of a session; trackers are added by ``attach``."""
        self._settings, self._budget, self._steps = settings, schedule.policy.budget, schedule.steps
        self._calls, self._leaves, self._frames, self._events = calls, forward.leaves, forward.frames, events
        #: The parts that may have the methods ``records`` and ``unseen``.
        self._parts: list[object] = [
            *(forward.regions, forward.detach_points, schedule.steps.optimizers, calls.layouts),
            *(forward.modules, forward.recorder.log, forward.values, forward.leaves, losses),
        ]
        #: Where and why the session ended early, if it did.
        self.stopped: Stopped | None = None

    def stop(self, error: BaseException) -> None:
        """Note that observing ended in this step because of `error`."""
        if self.stopped is None:
            text = f"too much of it failed, with {type(error).__name__}: {error}"[:300]
            self.stopped = Stopped(self._steps.index, text)

    def sources(self, seen: object = ()) -> dict[str, str]:
        """Return the source text to store with the recording, by file. It contains the lines that the records `seen`
        refer to (Note [Source excerpts]).
        """
        return sources(self._frames, seen, self._settings.source)

    def attach(self, tracker: Tracker) -> Callable[[], None]:
        """Attach `tracker` to the events and ask it for records, too. Returns a function that undoes both."""
        undo = self._events.attach(tracker)
        self._parts.append(tracker)

        def detach() -> None:
            """Detach the tracker from the events, and do not ask it for records any more."""
            undo()
            self._parts.remove(tracker)

        return detach

    def facts(self) -> Facts:
        """Return facts about the run so far: parameters, what was not observed, the checks made, and records of
        trackers.
        """
        leaves, steps = self._leaves, self._steps
        leaves.note_coverage(self._budget.share is None or self._budget.recorded_steps >= self._budget.steps)
        parameters = leaves.parameters(
            steps.optimized_parameters, steps.optimizers.visible_parameters, steps.optimizers.updated_since
        )
        seen = tuple(record for records in self._collect("records") for record in records)
        seen += leaves.free_parameters(steps.optimized_parameters)
        return Facts(parameters, self.unseen(), tuple(sorted(self._settings.checks)), (*seen, self.watched()))

    def watched(self) -> Watched:
        """Return a record of how many steps were recorded, observed in part, or not at all, and of the settings for
        that.
        """
        settings, steps, budget = self._settings, self._steps.index, self._budget
        first, last = (0, steps - 1) if steps else (None, None)
        asked = settings.level, settings.first, settings.last, settings.every
        counts = (
            budget.recorded_steps,
            budget.steps,
            budget.steps_without_record,
            budget.backward_only_steps,
            budget.undiagnosed_bad_losses,
        )
        return Watched(first, last, *asked, self.stopped, settings.budget, *counts)

    def unseen(self) -> tuple[Unseen, ...]:
        """Return counts of what was not observed."""
        found = tuple(one for unseen in self._collect("unseen") for one in unseen)
        return (*self._events.faults.unseen(), *missing(bool(self._calls.count)), *found)

    def _collect(self, method: str) -> list[Any]:
        """Call `method` of every part that has it, and return the results. Errors are counted."""
        answers = []
        for part in self._parts:
            ask = getattr(part, method, None)
            try:
                if ask is not None:
                    answers.append(tuple(ask()))
            except Exception as error:
                self._events.faults.add(type(part).__name__, error)
        return answers
