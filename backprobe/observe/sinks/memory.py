"""Keeps what the session saw in memory, within bounds: the first steps, the last ones, those with trouble, those in
which a gradient is far beyond the usual with those before the first of them, and those since which a part of it is
zero."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...records import BackwardCall, Measured, ModuleCall, Step
from ...traces import Shown, Steps, Trace, TracedStep

if TYPE_CHECKING:
    from ..backward.pending_call_record import PendingCallRecord
    from ..session import Session

#: How far beyond the usual a gradient is, where a step is kept for it; and how many such steps are.
SPIKE, SPIKES = 1e5, 4
#: Statistics that are held: 32 MiB of them.
NUMBERS = 8 << 20
#: Graphs whose zeros are counted, and steps that each of them has kept for that.
GRAPHS, LEVELS = 4, 4


class _Calls(Shown, Sequence[BackwardCall]):
    """Backward calls made into records when they are read."""

    def __init__(self, recorded: Sequence[PendingCallRecord]) -> None:
        self._recorded = recorded
        self._records: list[BackwardCall] | None = None

    def __len__(self) -> int:
        return len(self._recorded)

    def __getitem__(self, i: Any) -> Any:
        if self._records is None:
            self._records = [r.record() for r in self._recorded]
        return self._records[i]


class _Kept:
    __slots__ = ("backwards", "details", "spike", "step", "trail", "trouble", "zeros")

    def __init__(self) -> None:
        self.step: Step | None = None
        self.backwards: list[PendingCallRecord] = []
        self.trail: list[Any] = []
        self.details: dict[int, list[Any]] = {}
        self.trouble = self.spike = False
        #: Graph -> gradients in its call that were exactly zero.
        self.zeros: dict[int, int] = {}


class Collector:
    """A sink that holds at most `first` + 2 `last` + `troubled` + ``SPIKES`` + ``GRAPHS * LEVELS`` steps, with `limit`
    backward calls each and a few more."""

    def __init__(self, first: int = 4, last: int = 12, troubled: int = 12, limit: int = 400) -> None:
        self._first, self._troubled, self._limit = first, troubled, limit
        self._early: list[_Kept] = []
        self._late: deque[_Kept] = deque(maxlen=last)
        #: Apart: steps that were not recorded do not take the place of those that were.
        self._bare: deque[_Kept] = deque(maxlen=last)
        self._trouble: list[_Kept] = []
        #: Apart: gradients that grow for long before they overflow are not to take the place of the step that does.
        self._spiked: list[_Kept] = []
        #: The last steps before the first of those: what the usual is.
        self._before: list[_Kept] = []
        #: Graph -> numbers of zeros that there were in all of its calls since a step, which is kept; rising.
        self._zeros: dict[int, list[tuple[int, _Kept]]] = {}
        self._open = _Kept()
        #: The largest gradient of the call in which it was smallest.
        self._usual = math.inf
        self.steps = 0
        self.backwards = 0
        self._measured: list[Measured] = []
        #: Numbers in those.
        self._numbers = 0

    def measured(self, measured: Measured) -> None:
        """Keeps statistics; above ``NUMBERS`` of them every other record of the older half goes."""
        self._measured.append(measured)
        self._numbers += len(measured.values)
        if self._numbers > NUMBERS and len(self._measured) > 8:
            half = len(self._measured) // 2
            self._measured[:half] = self._measured[:half:2]
            self._numbers = sum(len(one.values) for one in self._measured)

    def backward(self, recorded: PendingCallRecord) -> None:
        self.backwards += 1
        most = max(recorded.norms, default=0.0)
        if 0.0 < most < math.inf:
            self._open.spike = self._open.spike or most > SPIKE * self._usual
            self._usual = min(self._usual, most)
        self._open.zeros[recorded.live.index] = recorded.norms.count(0.0)
        if len(self._open.backwards) < self._limit or recorded.trouble:
            self._open.backwards.append(recorded)
        if len(self._open.backwards) > 2 * self._limit:
            del self._open.backwards[self._limit : -self._limit // 2]
        self._open.trouble = self._open.trouble or recorded.trouble

    def step(self, step: Step, session: Session) -> None:
        kept, self._open = self._open, _Kept()
        kept.step = step
        kept.trail, kept.details = session.modules.trail, session.modules.details
        self.steps += 1
        self._count_zeros(kept)
        if len(self._early) < self._first:
            self._early.append(kept)
        elif kept.trouble and len(self._trouble) < self._troubled:
            self._trouble.append(kept)
        elif kept.spike and len(self._spiked) < SPIKES:
            self._before = self._before or [*self._late]
            self._spiked.append(kept)
        else:
            (self._late if kept.backwards else self._bare).append(kept)

    def _count_zeros(self, kept: _Kept) -> None:
        for graph, count in kept.zeros.items():
            if graph not in self._zeros and len(self._zeros) == GRAPHS:
                continue
            since = self._zeros.setdefault(graph, [])
            while since and since[-1][0] > count:
                since.pop()
            if count > (since[-1][0] if since else 0) and len(since) < LEVELS:
                since.append((count, kept))

    def cut(self, session: Session) -> None:
        """Nothing more comes: the step that goes on is the last."""
        kept, self._open = self._open, _Kept()
        if kept.backwards:
            indices = tuple(recorded.index for recorded in kept.backwards)
            kept.step = Step(kept.backwards[-1].step, 0.0, None, indices)
            kept.trail, kept.details = session.modules.trail, session.modules.details
            self.steps += 1
            self._late.append(kept)

    def counted(self, session: Session) -> int:
        """The steps that are over, those that passed without a record among them."""
        return self.steps + session.budget.passed

    def trace(self, session: Session, info: Mapping[str, Any] | None = None) -> Trace:
        """What is there, as a ``Trace``; call it when the session has stopped."""
        steps = []
        zeros = (kept for since in self._zeros.values() for _, kept in since)
        calm = (*self._early, *self._before, *self._late, *self._bare)
        there = dict.fromkeys((*calm, *self._trouble, *self._spiked, *zeros))
        kept = sorted(there, key=lambda k: k.step.index if k.step else 0)
        for one in kept:
            assert one.step is not None
            steps.append(TracedStep(one.step, _Calls(one.backwards), _module_calls(session, one)))
        shown = Steps(steps)
        shown.measured = list(self._measured)
        return Trace(shown, session.facts(), info, sources=session.sources)

    def at(self, session: Session, recorded: PendingCallRecord) -> Trace:
        """What is known in the middle of a step, at a call that is going on, for who wants to know now."""
        step = Step(recorded.step, 0.0, None, (recorded.index,))
        kept = _Kept()
        kept.trail, kept.details = session.modules.trail, session.modules.details
        known = self.trace(session)
        return Trace(
            [*known.steps, TracedStep(step, _Calls([recorded]), _module_calls(session, kept))], session.facts()
        )


def _module_calls(session: Session, kept: _Kept) -> Any:
    def calls() -> tuple[ModuleCall, ...]:
        return session.modules.calls_of(kept.trail, kept.details, kept.step.index if kept.step is not None else 0)

    return calls
