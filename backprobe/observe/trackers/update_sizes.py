"""Finds parameters whose updates are tiny in the whole run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...records import Step, TinyUpdates
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: A parameter is left out from its first update on that is at least this share of it; both are 2-norms.
MAX_RATIO = 1e-6
#: The number of the first and of the last measured updates that show whether updates grow.
COMPARED = 5
#: The maximum number of parameters that are counted.
MAX_PARAMETERS = 10_000


@dataclass
class _Sizes:
    """The updates of a parameter relative to it: how many were measured, the largest, the first and the last."""

    count: int = 0
    largest: float = 0.0
    first: list[float] = field(default_factory=list)
    last: deque[float] = field(default_factory=lambda: deque(maxlen=COMPARED))

    def add(self, ratio: float) -> None:
        self.count += 1
        self.largest = max(self.largest, ratio)
        self.last.append(ratio)
        if len(self.first) < COMPARED:
            self.first.append(ratio)


class UpdateSizeTracker(Tracker):
    """Tracker of parameters that have gradients and are changed by less than ``MAX_RATIO`` of their norm in each step.

    Norms that stay on an accelerator when the step ends are not counted.
    """

    def __init__(self, context: TrackerContext) -> None:
        self._tiny: dict[str, _Sizes] = {}
        #: Parameters of which an update was not tiny.
        self._others: set[str] = set()

    def step_ended(self, step: Step) -> None:
        for name, weight, gradient, update in ((p.name, p.weight, p.grad, p.update) for p in step.parameters):
            if name in self._others or not weight or not gradient or update is None:
                continue
            ratio = update / weight
            if ratio < MAX_RATIO and (name in self._tiny or len(self._tiny) < MAX_PARAMETERS):
                self._tiny.setdefault(name, _Sizes()).add(ratio)
            else:
                self._tiny.pop(name, None)
                self._others.add(name)

    def records(self) -> Iterator[TinyUpdates]:
        for name, sizes in self._tiny.items():
            first, last = max(sizes.first), max(sizes.last)
            yield TinyUpdates(name, sizes.count, sizes.largest, first, last)
