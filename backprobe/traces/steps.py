"""The steps of a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import ClassVar

from ..basics.text import counted, number
from ..records import BackwardCall, Measured, ModuleCall, ParameterStat, Step
from .shown import Rows, Shown
from .tables import Column, html


@dataclass(frozen=True)
class TracedStep:
    """A step and its recording."""

    #: The columns of a table of steps.
    COLUMNS: ClassVar[Sequence[Column]] = (
        ("step", lambda one: one.index),
        ("loss", lambda one: one.loss),
        ("ms", lambda one: 1e3 * one.seconds),
        ("recorded backward calls", lambda one: len(one.backwards)),
        ("nodes", lambda one: sum(len(call.nodes) for call in one.backwards)),
        ("raised", lambda one: next((call.raised.type for call in one.backwards if call.raised), None)),
    )

    record: Step
    backwards: Sequence[BackwardCall]
    _calls: Callable[[], Sequence[ModuleCall]] = field(repr=False, default=tuple)

    @property
    def index(self) -> int:
        return self.record.index

    @property
    def loss(self) -> float | None:
        return self.record.loss

    @property
    def seconds(self) -> float:
        return self.record.seconds

    @property
    def parameters(self) -> Mapping[str, ParameterStat]:
        """Norms of weights, gradients and updates by parameter, in the steps in which they were measured."""
        return {p.name: p for p in self.record.parameters}

    @property
    def module_calls(self) -> Sequence[ModuleCall]:
        """The calls of modules in the step, read when they are asked for."""
        return Rows(self._calls())

    def __repr__(self) -> str:
        said = "" if self.loss is None else f"loss {number(self.loss)}, "
        return f"<step {self.index}: {said}{counted(len(self.backwards), 'backward call')} recorded>"

    def _repr_html_(self) -> str:
        title = f"<p>{escape(repr(self))}</p>"
        norms = [*self.parameters.values()]
        return title + html(self.backwards) * bool(self.backwards) + html(norms) * bool(norms)


class Steps(Shown, list[TracedStep]):
    """Steps in memory, as a list that displays as a table.

    :ivar measured: statistics by layer, of these and of other steps.
    """

    measured: Sequence[Measured] = ()

    def statistics(self, after: int = -1) -> Sequence[Measured]:
        """Return the statistics by layer of the steps after step `after`."""
        return [one for one in self.measured if one.step > after]


@dataclass(frozen=True)
class StepRow:
    """The numbers of a step, without its nodes.

    ``values`` has the 2-norms of weight, gradient and update of the first of ``names``, then of the second, and so on;
    -1 if not measured. ``loss`` is the sum of the roots of ``calls`` backward calls, divided by ``scale``. For the
    others see ``Step``.
    """

    index: int
    seconds: float
    loss: float | None
    names: Sequence[str]
    values: Sequence[float]
    calls: int = 1
    scale: float = 1.0
    resident: int | None = None
    allocated: int | None = None
    graphs: int = 0
    watching: float = 0.0
    clip_norm: float | None = None


def numbers_of(steps: Sequence[TracedStep]) -> Sequence[int]:
    """Return the numbers of the steps, without reading the steps themselves if they are on disk."""
    known: Sequence[int] | None = getattr(steps, "numbers", None)
    return [step.index for step in steps] if known is None else known
