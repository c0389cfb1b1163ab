"""What watching costs, for the report's "took about"."""

from __future__ import annotations

import time

from ..forward.modules import ModuleWatch
from ..forward.oplog import OpLog
from .steps import StepWatch

_clock = time.perf_counter
#: Seconds that cannot be measured from inside: of an op under the eye, of a module call, of handing a node's gradients
#: to a hook. Measured with bench/overhead.py where a call of an empty function took ``_CALL``.
_OP, _MODULE, _NODE, _CALL = 4e-6, 3.6e-6, 2.5e-6, 4.0e-8


class Cost:
    """Adds up what is measured in hooks and walks, and estimates the rest from counts."""

    def __init__(self, log: OpLog, modules: ModuleWatch, steps: StepWatch) -> None:
        self._log, self._modules, self._steps = log, modules, steps
        #: Seconds measured in backward calls and in handing on.
        self.watching = 0.0
        #: Nodes that ran with a hook.
        self.nodes = 0
        #: Seconds of the first step, and what of it was watching.
        self._first: tuple[float, float] | None = None
        self._speed = _call_time() / _CALL
        self._begin = _clock()

    def begin(self) -> None:
        self._begin = _clock()

    def step_over(self) -> None:
        if self._first is None:
            self._first = (self._steps.total, self.watching + self._steps.spent)

    @property
    def share(self) -> float:
        """The cost so far as a share of the steps' own time."""
        ops = len(self._log.ends) + self._log.added
        counted = ops * _OP + self._modules.total * _MODULE + self.nodes * _NODE
        spent = self.watching + self._steps.spent + counted * self._speed
        if self._first is None:
            return spent / max(_clock() - self._begin - spent, 1e-9)
        # The first step holds the script's own preparations, and ours.
        seconds, before = self._steps.total - self._first[0], self._first[1]
        return (spent - before) / max(seconds - (spent - before), 1e-9) if seconds else 0.0


def _call_time() -> float:
    """Seconds of a call of an empty function on this machine, now."""

    def empty() -> None: ...

    begin = _clock()
    for _ in range(2000):
        empty()
    return (_clock() - begin) / 2000
