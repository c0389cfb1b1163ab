"""Gathers the facts of a run from the parts of its session: for records that concern the whole run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..records import Facts, Stopped, Unseen, Watched
from ..torch_internals.facts import missing
from .backward.calls import BackwardCalls
from .events import Events
from .forward.leaves import Leaves
from .schedule.budget import Budget
from .schedule.settings import Settings
from .schedule.steps import StepWatch
from .tracker import Tracker


class RunFacts:
    """The facts that are known of a run so far, and counts of what could not be observed.

    :param parts: the parts of the session that may have the methods ``records`` and ``unseen``.
    """

    def __init__(
        self,
        settings: Settings,
        budget: Budget,
        steps: StepWatch,
        calls: BackwardCalls,
        leaves: Leaves,
        events: Events,
        parts: list[Any],
    ) -> None:
        self._settings, self._budget, self._steps, self._calls = settings, budget, steps, calls
        self._leaves, self._events, self._parts = leaves, events, parts
        #: Where and why the session ended early, if it did.
        self.stopped: Stopped | None = None

    def attach(self, tracker: Tracker) -> Callable[[], None]:
        """Attach `tracker` to the events and ask it for records, too. Returns a function that undoes both."""
        undo = self._events.attach(tracker)
        self._parts.append(tracker)

        def detach() -> None:
            undo()
            self._parts.remove(tracker)

        return detach

    def facts(self) -> Facts:
        """Return facts about the run as a whole, so far."""
        leaves, steps = self._leaves, self._steps
        leaves.whole = self._budget.share is None or self._budget.recorded >= self._budget.steps
        parameters = leaves.parameters(steps.listed, steps.present, steps.goes_on)
        seen = tuple(record for records in self._ask("records") for record in records)
        seen += leaves.free(steps.listed)
        return Facts(parameters, self.unseen(), tuple(sorted(self._settings.checks)), (*seen, self.watched()))

    def watched(self) -> Watched:
        """Return the record of how much of the run was observed so far."""
        settings, steps, budget = self._settings, self._steps.index, self._budget
        first, last = (0, steps - 1) if steps else (None, None)
        asked = settings.level, settings.first, settings.last, settings.every
        counts = budget.recorded, budget.steps, budget.passed, budget.repeated, budget.only_counted
        return Watched(first, last, *asked, self.stopped, settings.budget, *counts)

    def unseen(self) -> tuple[Unseen, ...]:
        """Return counts of what was not observed."""
        found = tuple(one for unseen in self._ask("unseen") for one in unseen)
        return (*self._events.faults.unseen(), *missing(bool(self._calls.count)), *found)

    def _ask(self, method: str) -> list[Any]:
        """Call `method` of every part that has it, and return the answers."""
        answers = []
        for part in self._parts:
            ask = getattr(part, method, None)
            try:
                if ask is not None:
                    answers.append(tuple(ask()))
            except Exception as error:
                self._events.faults.add(type(part).__name__, error)
        return answers
