"""The parts that plan, count and time steps, as one group."""

from __future__ import annotations

from dataclasses import dataclass

from ..events import Events
from ..forward.naming import Naming
from ..recording_state import RecordingState
from .budget import FREE_SECONDS
from .cost import Cost
from .new_line_scanner import NewLineScanner
from .settings import Settings
from .step_policy import StepPolicy
from .steps import StepWatch


@dataclass(frozen=True)
class StepSchedule:
    """The parts that plan, count and time the steps of a session, and the state of recording that results."""

    policy: StepPolicy
    cost: Cost
    state: RecordingState
    steps: StepWatch
    scanner: NewLineScanner

    @classmethod
    def build(cls, settings: Settings, names: Naming, events: Events) -> StepSchedule:
        """Make the parts that plan, count and time steps, as the settings ask for."""
        policy, state = StepPolicy(settings), RecordingState()
        free = 0.0 if settings.budget is None else FREE_SECONDS
        cost = Cost(events.own, settings.inspected_steps, free, settings.budget)
        steps = StepWatch(names, events, cost, state, ends_early=policy.omits_steps, share=settings.budget)
        scanner = NewLineScanner(names.frames, steps, events, state, settings.inspected_steps)
        return cls(policy, cost, state, steps, scanner)
