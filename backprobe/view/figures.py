"""Numbers of a run's steps, shared by terminal and page: the gradient norm of each step, and the main figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator

from ..basics.text import counted, number
from ..records import together
from ..traces import StepRow, Trace
from ..traces.gradients import BACKWARD, NO_SOURCE, OPTIMIZER, WORDS, Gradients, OneKind

#: Number of steps at the start that decide which kind of gradient norm a run has.
DECIDING_STEPS = 32
#: Norms of one gradient that differ by more than this share differ by more than the rounding of half precision.
MAX_ROUNDING = 0.02


def with_gradients(trace: Trace, rows: Iterable[StepRow], first: int = 0) -> Iterator[tuple[StepRow, Gradients]]:
    """Yield each of `rows` with its gradients, as norms of one kind (before or after clipping).

    :param rows: the rows of `trace` from position `first` on.
    """
    norms = OneKind(kind_of(trace) if first else NO_SOURCE)
    for at, row in enumerate(rows, first):
        yield row, _gradients(norms, trace, at, row)


def some_with_gradients(trace: Trace, positions: Iterable[int]) -> Iterator[tuple[StepRow, Gradients]]:
    """Yield the rows of the steps at `positions`, each with its gradients."""
    norms = OneKind(kind_of(trace))
    for at in positions:
        for row in trace.step_rows(at, at + 1):
            yield row, _gradients(norms, trace, at, row)


def kind_of(trace: Trace) -> int:
    """Return the kind of gradient norm of `trace` (before or after clipping): that of the first step with norms.

    Only the first ``DECIDING_STEPS`` steps are searched.
    """
    norms = OneKind()
    for at, row in enumerate(trace.step_rows(0, DECIDING_STEPS)):
        _gradients(norms, trace, at, row)
        if norms.kind != NO_SOURCE:
            break
    return norms.kind


def _gradients(norms: OneKind, trace: Trace, at: int, row: StepRow) -> Gradients:
    """Return the gradients of the step at position `at` of a trace."""
    return norms.of(trace.steps[at].backwards, zip(row.names, row.values[1::3], strict=True), row.clip_norm)


def ratios_of(row: StepRow) -> list[float]:
    """Return, for each parameter with a measured update, the norm of the update relative to the parameter's norm."""
    return [u / w for u, w in zip(row.values[2::3], row.values[0::3], strict=True) if u >= 0 and w > 0]


class Figures:
    """Collects the steps one by one, and formats the main figures: loss, size of gradients and of updates."""

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._bad_losses = 0
        self._meant = ""
        self._norms: list[float] = []
        self._kind = NO_SOURCE
        self._ratios: list[float] = []
        #: Total norms as optimizers used them, and whether one differs from that before clipping in the same step.
        self._used: list[float] = []
        self._differs = False
        self._taken = 0

    def take(self, row: StepRow, gradients: Gradients) -> None:
        """Add a step, given as its row and its gradients."""
        self._taken += 1
        if row.loss is not None:
            self._losses = [*self._losses[:1], row.loss]
            self._bad_losses += not math.isfinite(row.loss)
            self._meant = _meant(row)
        if gradients.total is not None:
            self._norms.append(gradients.total)
            self._kind = gradients.source
        used = [value for value in row.values[1::3] if value >= 0]
        if used and gradients.source == BACKWARD and gradients.total is not None:
            self._used.append(together(used) or 0.0)
            self._differs = self._differs or not _alike(self._used[-1], gradients.total)
        self._ratios += ratios_of(row)

    def _not_finite(self, trace: Trace) -> str:
        """Return in how many steps the loss was not finite, in words, and how many of these were only counted; else
        empty.
        """
        counted = trace.coverage.observed.only_counted
        bad = max(self._bad_losses, counted)
        if not bad:
            return ""
        text = f"; not finite in {bad:,} {'step' if bad == 1 else 'steps'}"
        return f"{text}, of which {counted:,} were not recorded" if counted else text

    def lines(self, trace: Trace) -> list[str]:
        """Return the main figures, a line each: loss, gradient norm (also as the optimizer saw it), updates."""
        lines = []
        if self._losses:
            first, last = number(self._losses[0]), number(self._losses[-1])
            one = self._taken == 1
            text = f"loss {last}" if one else f"loss {first} in the first step, {last} in the last"
            lines.append(f"{text}{self._meant}{self._not_finite(trace)}")
        finite = [n for n in self._norms if math.isfinite(n)]
        if finite:
            text = f"gradient norm {_range(finite)} {WORDS[self._kind]}"
            steps = int(trace.info.get("steps", len(trace.steps)))
            if len(self._norms) < steps:
                text += f", in {len(self._norms):,} of {steps:,} steps"
            if len(finite) < len(self._norms):
                text += f"; not finite in {len(self._norms) - len(finite):,}"
            lines.append(text)
        used = [n for n in self._used if math.isfinite(n)]
        if used and self._differs:
            lines.append(f"gradient norm {_range(used)} {WORDS[OPTIMIZER]}, in {counted(len(used), 'step')}")
        ratios = [r for r in self._ratios if math.isfinite(r)]
        if ratios:
            lines.append(
                f"an update changes a parameter by {number(100 * statistics.median(ratios))}% of its norm (median)"
            )
        return lines


def _range(values: list[float]) -> str:
    """Return the smallest and the largest value as text, or one if they are equal."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def _alike(one: float, other: float) -> bool:
    """Return whether two norms differ by rounding only."""
    return not (math.isfinite(one) and math.isfinite(other)) or abs(one - other) <= MAX_ROUNDING * max(one, other)


def _meant(row: StepRow) -> str:
    """Return how the loss of a step was computed, if it is not the root of a single backward call."""
    said = []
    if row.calls > 1:
        said.append(f"the sum over its {row.calls} backward calls")
    if row.scale != 1.0:
        said.append(f"without the GradScaler's factor, {number(row.scale)}")
    return f" ({'; '.join(said)})" if said else ""


def figures(trace: Trace) -> list[str]:
    """Return the main figures of the steps of `trace`, one line each."""
    found = Figures()
    for row, gradients in with_gradients(trace, trace.step_rows()):
        found.take(row, gradients)
    return found.lines(trace)
