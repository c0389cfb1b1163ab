"""The parts of a step: how long each takes in a typical recorded step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..records import StepPhases

#: The parts of a step in their order, by their names in ``StepPhases``.
PHASES = ("before", "forward", "backward", "optimizer", "rest")


@dataclass(frozen=True, slots=True)
class TypicalStep:
    """The median seconds of each part of the recorded steps.

    :ivar steps: how many steps they were taken from.
    """

    steps: int
    before: float
    forward: float
    backward: float
    optimizer: float
    rest: float

    @property
    def seconds(self) -> float:
        """Return the seconds of all parts together."""
        return self.before + self.forward + self.backward + self.optimizer + self.rest


def typical_step(phases: Sequence[StepPhases]) -> TypicalStep | None:
    """Return the medians of the parts of steps, each part by itself; ``None`` without any step."""
    if not phases:
        return None
    return TypicalStep(len(phases), *(statistics.median(getattr(one, name) for one in phases) for name in PHASES))
