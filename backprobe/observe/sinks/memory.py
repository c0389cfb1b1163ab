"""A sink that keeps records in memory, within bounds.

It keeps the first steps, the last ones, steps with errors, steps with a gradient far above the usual (and the steps
before the first of them), and steps since which some gradients are exactly zero.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...records import BackwardCall, BriefSteps, Measured, ModuleCall, Step
from ...trace_api import Trace
from ...traces import Shown, Steps, TracedStep

if TYPE_CHECKING:
    from ...source.roots import ModuleCallRef
    from ..backward.pending_call_record import PendingCallRecord
    from ..session import Session

#: Factor above the usual gradient norm from which a step is kept, and the maximum number of such steps.
SPIKE_RATIO, MAX_SPIKES = 1e5, 4
#: Maximum number of statistics that are kept: 32 MiB.
MAX_NUMBERS = 8 << 20
#: Maximum number of graphs whose zero gradients are counted, and of steps that are kept for each of them.
MAX_COUNTED_GRAPHS, MAX_LEVELS_PER_GRAPH = 4, 4


class _LazyCalls(Shown, Sequence[BackwardCall]):
    """Backward calls, converted into records at the first read."""

    def __init__(self, recorded: Sequence[PendingCallRecord]) -> None:
        self._recorded = recorded
        self._records: list[BackwardCall] | None = None

    def __len__(self) -> int:
        return len(self._recorded)

    def __getitem__(self, i: Any) -> Any:
        """Return call `i`, or several for a slice; the first read makes the records of all."""
        if self._records is None:
            self._records = [r.record() for r in self._recorded]
        return self._records[i]


class _StoredStep:
    """A step that is stored, with its backward calls and module calls."""

    __slots__ = ("backwards", "details", "spike", "step", "trail", "trouble", "zeros")

    def __init__(self) -> None:
        """Start an empty step, to which backward calls are added until it is over."""
        self.step: Step | None = None
        self.backwards: list[PendingCallRecord] = []
        self.trail: list[ModuleCallRef | None] = []
        self.details: dict[int, list[Any]] = {}
        self.trouble = self.spike = False
        #: Graph -> gradients in its call that were exactly zero.
        self.zeros: dict[int, int] = {}


class Collector:
    """A sink that keeps records in memory.

    It keeps at most `first` + 2 `last` + `troubled` + ``MAX_SPIKES`` + ``MAX_COUNTED_GRAPHS * MAX_LEVELS_PER_GRAPH``
    steps, and about `limit` backward calls in each.
    """

    def __init__(self, first: int = 4, last: int = 12, troubled: int = 12, limit: int = 400) -> None:
        """Start without steps.

        :param first, last, troubled: how many of the first steps, of the last ones, and of those with errors are kept.
        :param limit: about how many backward calls are kept in each step.
        """
        self._first, self._troubled, self._limit = first, troubled, limit
        self._early: list[_StoredStep] = []
        self._late: deque[_StoredStep] = deque(maxlen=last)
        #: Unrecorded steps, kept separately so that they do not displace recorded ones.
        self._bare: deque[_StoredStep] = deque(maxlen=last)
        self._trouble: list[_StoredStep] = []
        #: Steps with a gradient spike, kept separately: growing gradients must not displace the step that overflows.
        self._spiked: list[_StoredStep] = []
        #: The last steps before the first spike: they show the usual gradients.
        self._before: list[_StoredStep] = []
        #: For each graph: a count of zero gradients that all its calls since a kept step have reached, with that step;
        #: rising.
        self._zeros: dict[int, list[tuple[int, _StoredStep]]] = {}
        self._open = _StoredStep()
        #: The smallest maximum gradient norm of any call so far.
        self._usual = math.inf
        self.steps = 0
        self.backwards = 0
        self._measured: list[Measured] = []
        #: Number of values in ``_measured``.
        self._numbers = 0

    def measured(self, measured: Measured) -> None:
        """Keep the statistics of a step; above ``MAX_NUMBERS`` values, drop every other record of the older half."""
        self._measured.append(measured)
        self._numbers += len(measured.values)
        if self._numbers > MAX_NUMBERS and len(self._measured) > 8:
            half = len(self._measured) // 2
            self._measured[:half] = self._measured[:half:2]
            self._numbers = sum(len(one.values) for one in self._measured)

    def backward(self, recorded: PendingCallRecord) -> None:
        """Add a backward call to the running step, and note whether it has trouble, a gradient spike or zero
        gradients.
        """
        self.backwards += 1
        most = max(recorded.norms, default=0.0)
        if 0.0 < most < math.inf:
            self._open.spike = self._open.spike or most > SPIKE_RATIO * self._usual
            self._usual = min(self._usual, most)
        self._open.zeros[recorded.live.index] = recorded.norms.count(0.0)
        if len(self._open.backwards) < self._limit or recorded.has_trouble:
            self._open.backwards.append(recorded)
        if len(self._open.backwards) > 2 * self._limit:
            del self._open.backwards[self._limit : -self._limit // 2]
        self._open.trouble = self._open.trouble or recorded.has_trouble

    def step(self, step: Step, session: Session) -> None:
        """End the running step: keep it among the first, the bad, the spiked or the last ones."""
        stored, self._open = self._open, _StoredStep()
        stored.step = step
        stored.trail, stored.details = session.forward.modules.trail, session.forward.modules.details
        self.steps += 1
        self._count_zeros(stored)
        if len(self._early) < self._first:
            self._early.append(stored)
        elif stored.trouble and len(self._trouble) < self._troubled:
            self._trouble.append(stored)
        elif stored.spike and len(self._spiked) < MAX_SPIKES:
            self._before = self._before or [*self._late]
            self._spiked.append(stored)
        else:
            (self._late if stored.backwards else self._bare).append(stored)

    def brief_steps(self, steps: BriefSteps, session: Session) -> None:
        """Keep the last of these fast-path steps; the others are only counted."""
        self.steps += len(steps)
        for step in steps.last(self._bare.maxlen or 0):
            stored = _StoredStep()
            stored.step, stored.trail, stored.details = (
                step,
                session.forward.modules.trail,
                session.forward.modules.details,
            )
            self._bare.append(stored)

    def _count_zeros(self, stored: _StoredStep) -> None:
        """Keep the step since which the calls of a graph have had at least as many zero gradients as now."""
        for graph, count in stored.zeros.items():
            if graph not in self._zeros and len(self._zeros) == MAX_COUNTED_GRAPHS:
                continue
            since = self._zeros.setdefault(graph, [])
            while since and since[-1][0] > count:
                since.pop()
            if count > (since[-1][0] if since else 0) and len(since) < MAX_LEVELS_PER_GRAPH:
                since.append((count, stored))

    def cut(self, session: Session) -> None:
        """Keep the running step as it is, without a loss: the session ends, and no more records will come."""
        stored, self._open = self._open, _StoredStep()
        if stored.backwards:
            indices = tuple(recorded.index for recorded in stored.backwards)
            stored.step = Step(stored.backwards[-1].step, 0.0, None, indices)
            stored.trail, stored.details = session.forward.modules.trail, session.forward.modules.details
            self.steps += 1
            self._late.append(stored)

    def counted(self, session: Session) -> int:
        """Return how many steps are over, including unrecorded ones."""
        return self.steps + session.budget.steps_without_record

    def trace(self, session: Session, info: Mapping[str, object] | None = None) -> Trace:
        """Return the kept steps as a ``Trace``. Call it after the session has stopped."""
        steps = []
        zeros = (stored for since in self._zeros.values() for _, stored in since)
        calm = (*self._early, *self._before, *self._late, *self._bare)
        kept_steps = dict.fromkeys((*calm, *self._trouble, *self._spiked, *zeros))
        stored = sorted(kept_steps, key=lambda k: k.step.index if k.step else 0)
        for one in stored:
            assert one.step is not None
            steps.append(TracedStep(one.step, _LazyCalls(one.backwards), _module_calls(session, one)))
        shown = Steps(steps)
        shown.measured = list(self._measured)
        return Trace(shown, session.facts(), info, sources=session.run_facts.sources)

    def at(self, session: Session, recorded: PendingCallRecord) -> Trace:
        """Return a ``Trace`` in the middle of a step, during the backward call `recorded`."""
        step = Step(recorded.step, 0.0, None, (recorded.index,))
        stored = _StoredStep()
        stored.trail, stored.details = session.forward.modules.trail, session.forward.modules.details
        known = self.trace(session)
        steps = [*known.steps, TracedStep(step, _LazyCalls([recorded]), _module_calls(session, stored))]
        return Trace(steps, session.facts())


def _module_calls(session: Session, stored: _StoredStep) -> Callable[[], Sequence[ModuleCall]]:
    """Return a function that gives the module calls of a stored step, when they are read."""

    def calls() -> tuple[ModuleCall, ...]:
        """Return the module calls of the step."""
        return session.forward.modules.calls_of(
            stored.trail, stored.details, stored.step.index if stored.step is not None else 0
        )

    return calls
