"""Finds parameters whose updates are tiny in the whole run, or from a step on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from ... import thresholds
from ...records import Step, TinyUpdates
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: The maximum number of parameters that are counted.
MAX_PARAMETERS = 10_000


@dataclass
class _Sizes:
    """Tiny updates of a parameter relative to it: how many were measured, the largest, the first and the last.

    :ivar since: the step of the first one, if larger ones came before; ``until``: the step of the last one.
    """

    since: int = 0
    until: int = 0
    count: int = 0
    largest: float = 0.0
    first: list[float] = field(default_factory=list)
    last: deque[float] = field(default_factory=lambda: deque(maxlen=thresholds.TINY_UPDATE_COMPARED_LOOKS))

    def add(self, ratio: float, step: int) -> None:
        """Add a tiny update in `step`; `ratio`: its norm divided by that of the parameter."""
        self.count, self.until = self.count + 1, step
        self.largest = max(self.largest, ratio)
        self.last.append(ratio)
        if len(self.first) < thresholds.TINY_UPDATE_COMPARED_LOOKS:
            self.first.append(ratio)


class UpdateSizeTracker(Tracker):
    """Tracker of parameters that have gradients and whose updates are tiny in each step, or in each step from one on.

    Norms that stay on an accelerator when the step ends are not counted.
    """

    def __init__(self, context: TrackerContext) -> None:
        self._tiny: dict[str, _Sizes] = {}
        #: Parameters of which an update was not tiny.
        self._moved: set[str] = set()

    def step_ended(self, step: Step) -> None:
        """Count the parameters whose update in the step was tiny; one with a larger update starts anew."""
        tiny, moved = self._tiny, self._moved
        for p in step.parameters:
            if not p.weight or not p.grad or p.update is None:
                continue
            ratio = p.update / p.weight
            if ratio < thresholds.TINY_UPDATE_MAX_RATIO:
                sizes = tiny.get(p.name)
                if sizes is None and len(tiny) < MAX_PARAMETERS:
                    sizes = tiny[p.name] = _Sizes(step.index if p.name in moved else 0)
                if sizes is not None:
                    sizes.add(ratio, step.index)
            elif p.name in tiny or p.name not in moved:
                tiny.pop(p.name, None)
                moved.add(p.name)

    def records(self) -> Iterator[TinyUpdates]:
        """Yield a record of each parameter whose updates are tiny to the end."""
        for name, sizes in self._tiny.items():
            first, last = max(sizes.first), max(sizes.last)
            yield TinyUpdates(name, sizes.count, sizes.largest, first, last, sizes.since, sizes.until)
