"""The steps of a run as columns: loss, norms over all parameters, and norms by parameter, thinned if there are many."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from ..records import ModuleCall
from ..traces import StepRow, Trace
from ..traces.gradients import Gradients
from ..view.figures import Figures, ratios_of, with_gradients
from .columns import column, norms
from .tables import Order, total

#: Maximum number of norms of one kind in a page; above it, they are thinned.
MAX_NORMS = 400_000
_KINDS = ("weight", "gradient", "update")


class Steps:
    """Collects the steps one by one, in order, with the data that the page needs.

    :param count: how many there will be.
    """

    def __init__(self, parameters: Order, count: int) -> None:
        self._parameters = parameters
        self.count = count
        size = max(len(parameters.names), 1)
        #: Number of steps in a bucket: a power of two, so that buckets stay the same while a run grows.
        self.width = 1 << max(0, math.ceil(math.log2(max(1, count * size) / MAX_NORMS)))
        self._index: list[int] = []
        self._seconds, self._loss, self._known = array("f"), array("d"), array("B")
        self._totals: dict[str, array[float]] = {kind: array("d") for kind in _KINDS}
        self._ratio, self._source, self._recorded = array("d"), array("B"), array("B")
        self.figures = Figures()
        self._resident, self._allocated, self._graphs = array("d"), array("d"), array("i")
        self._calls, self._scale = array("i"), array("d")
        self._series = {kind: _Series(size, self.width) for kind in _KINDS}
        self._order: tuple[Sequence[str] | None, list[int]] = (None, [])

    def take(self, row: StepRow, gradients: Gradients) -> None:
        """Add the next step and its gradients."""
        self.figures.take(row, gradients)
        at = len(self._index)
        self._index.append(row.index)
        self._seconds.append(row.seconds)
        self._known.append(row.loss is not None)
        self._loss.append(math.nan if row.loss is None else row.loss)
        self._calls.append(row.calls)
        self._scale.append(row.scale)
        self._resident.append(-1 if row.resident is None else row.resident)
        self._allocated.append(-1 if row.allocated is None else row.allocated)
        self._graphs.append(row.graphs)
        if row.names is not self._order[0]:
            self._order = (row.names, [self._parameters.of(n) for n in row.names])
        self._source.append(gradients.source)
        self._recorded.append(gradients.calls > 0)
        self._totals["gradient"].append(-1.0 if gradients.total is None else gradients.total)
        self._series["gradient"].take(
            at, [self._parameters.of(n) for n in gradients.norms], [*gradients.norms.values()]
        )
        for kind, values in (("weight", row.values[0::3]), ("update", row.values[2::3])):
            self._totals[kind].append(total(values))
            self._series[kind].take(at, self._order[1], values)
        ratios = ratios_of(row)
        self._ratio.append(statistics.median(ratios) if ratios else -1.0)

    def document(self, call_of: Callable[[int], int]) -> dict[str, object]:
        """Return the steps as columns for the page.

        :param call_of: returns the first backward call of a step that the page has, or -1.
        """
        starts = range(0, len(self._index), self.width)
        totals = {kind: column("d", values) for kind, values in self._totals.items()}
        return {
            "index": column("i", self._index),
            "seconds": column("f", self._seconds),
            "loss": column("d", self._loss),
            "known": column("B", self._known),
            "calls": column("i", self._calls),
            "scale": column("d", self._scale),
            **totals,
            "ratio": column("d", self._ratio),
            "source": column("B", self._source),
            "recorded": column("B", self._recorded),
            "resident": column("d", self._resident),
            "allocated": column("d", self._allocated),
            "graphs": column("i", self._graphs),
            "call": column("i", [call_of(i) for i in self._index]),
            "series": {
                "exact": self.width == 1,
                "start": column("i", starts),
                "size": max(len(self._parameters.names), 1),
                **{kind: series.document() for kind, series in self._series.items()},
            },
        }


def span(trace: Trace, names: Sequence[str], first: int, end: int) -> dict[str, object]:
    """Return the steps at positions `first` up to `end` (not included) as a document, with less thinning or none.

    :param names: the parameters, in the order of the page.
    """
    rows = trace.step_rows(first, end)
    return read_steps(trace, Order(names), max(end - first, 0), rows, first).document(lambda step: -1)


def read_steps(trace: Trace, parameters: Order, count: int, rows: Iterable[StepRow], first: int = 0) -> Steps:
    """Collect `count` steps of `trace` from position `first` on.

    :param rows: the numbers of these steps.
    """
    numbers = Steps(parameters, count)
    for row, gradients in with_gradients(trace, rows, first):
        numbers.take(row, gradients)
    return numbers


class _Series:
    """The smallest and largest norm of each parameter in each bucket of neighbouring steps."""

    def __init__(self, size: int, width: int) -> None:
        self._size, self._width = size, width
        self._low: list[list[float]] = []
        self._high: list[list[float]] = []

    def take(self, at: int, places: Sequence[int], values: Sequence[float]) -> None:
        """Add the norms of the step at position `at`; `places` are the indices of their parameters."""
        row = [-1.0] * self._size
        for place, value in zip(places, values, strict=False):
            row[place] = value
        if at % self._width == 0:
            self._low.append(row)
            self._high.append(row)
            return
        high, low = self._high[-1], self._low[-1]
        if math.isfinite(sum(row)) and math.isfinite(sum(high)) and (min(row) >= 0 <= min(low)):
            self._high[-1] = list(map(max, high, row))
            self._low[-1] = list(map(min, low, row))
        else:
            self._high[-1] = list(map(worse, high, row))
            self._low[-1] = list(map(_least, low, row))

    def document(self) -> dict[str, object]:
        """Return the norms as columns: only one if each step has a bucket of its own."""
        return {
            "low": column("f", []) if self._width == 1 else norms(chain.from_iterable(self._low)),
            "high": norms(chain.from_iterable(self._high)),
        }


def worse(a: float, b: float) -> float:
    """Return NaN if one of the values is NaN, otherwise the larger one."""
    return a if a != a or b <= a else b


def _least(a: float, b: float) -> float:
    """Return the smaller of two values that were measured and are not NaN; if one is not so, the other."""
    if not a >= 0:
        return b
    return a if not b >= 0 else min(a, b)


def forwards(trails: Iterable[Sequence[ModuleCall]], module_of: Callable[[str], int]) -> list[dict[str, object]]:
    """Return the norms of module outputs by the step in which they were measured.

    This may be another step than the requested one, with the same module calls.

    :param trails: the module calls of each shown step.
    """
    found: dict[int, dict[str, object]] = {}
    for calls in trails:
        measured = [c for c in calls if c.norm is not None and c.seen is not None]
        if measured:
            step = measured[0].seen
            assert step is not None
            found.setdefault(
                step,
                {
                    "step": step,
                    "module": column("i", [module_of(c.path) for c in measured]),
                    "nth": column("i", [c.call for c in measured]),
                    "norm": norms([c.norm for c in measured]),
                },
            )
    return [found[step] for step in sorted(found)]
