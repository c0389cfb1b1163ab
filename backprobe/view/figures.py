"""The numbers of a run's steps, one way for terminal and page: which gradient norm a step has, and the main figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..gradients import LeafGradients
from ..records import together
from ..text import number
from ..traced import StepRow, Trace

#: Where the gradients of a step were measured: not at all, by its backward call, or by the optimizer that used them
#: (all calls of the step added up, after a script has clipped or unscaled them).
NONE, BACKWARD, OPTIMIZER = 0, 1, 2


@dataclass(frozen=True)
class Gradients:
    """Norms of a step's gradients by parameter, and of all together, which is unknown where some are."""

    norms: Mapping[str, float]
    source: int = NONE
    whole: bool = True

    @property
    def total(self) -> float | None:
        return together([*self.norms.values()]) if self.norms and self.whole else None


def with_gradients(trace: Trace, rows: Iterable[StepRow], first: int = 0) -> Iterator[tuple[StepRow, Gradients]]:
    """`rows`, which are those of `trace` from position `first` on, each with its gradients.

    What the backward call gave, where one call gave all: steps whose optimizer was looked at and others are alike then.
    """
    leaves = LeafGradients()
    for at, row in enumerate(rows, first):
        norms, whole = leaves.of(trace.steps[at].backwards)
        if norms and whole:
            yield row, Gradients(norms, BACKWARD)
            continue
        used = {name: value for name, value in zip(row.names, row.values[1::3], strict=True) if not value < 0}
        yield row, Gradients(used, OPTIMIZER) if used else Gradients(norms, BACKWARD if norms else NONE, whole)


def ratios_of(row: StepRow) -> list[float]:
    """By how much of its norm the step changed each parameter, where that was measured."""
    return [u / w for u, w in zip(row.values[2::3], row.values[0::3], strict=True) if u >= 0 and w > 0]


class Figures:
    """Takes the steps one by one, and has the main figures in a line each: loss, size of gradients and updates."""

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._norms: list[float] = []
        self._ratios: list[float] = []

    def take(self, row: StepRow, gradients: Gradients) -> None:
        if row.loss is not None:
            self._losses = [*self._losses[:1], row.loss]
        if gradients.total is not None:
            self._norms.append(gradients.total)
        self._ratios += ratios_of(row)

    def lines(self, trace: Trace) -> list[str]:
        lines = []
        if self._losses:
            lines.append(f"loss {number(self._losses[0])} in the first step, {number(self._losses[-1])} in the last")
        finite = [n for n in self._norms if math.isfinite(n)]
        if finite:
            text = f"gradient norm {number(min(finite))} to {number(max(finite))}"
            steps = int(trace.info.get("steps", len(trace.steps)))
            if len(self._norms) < steps:
                text += f" in the {len(self._norms):,} of {steps:,} steps where it is known"
            if len(finite) < len(self._norms):
                text += f", not finite in {len(self._norms) - len(finite):,}"
            ratios = [r for r in self._ratios if math.isfinite(r)]
            if ratios:
                text += (
                    f"; an update changes a parameter by {number(statistics.median(ratios))} of its norm in the median"
                )
            lines.append(text)
        return lines


def figures(trace: Trace) -> list[str]:
    """The main figures of the steps of `trace`."""
    found = Figures()
    for row, gradients in with_gradients(trace, trace.step_rows()):
        found.take(row, gradients)
    return found.lines(trace)
