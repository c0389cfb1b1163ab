"""Collects the losses of the steps between two measurements, including steps in which nothing else is measured."""

from __future__ import annotations

from array import array
from statistics import median

from ...records import Measured, Step
from ...records.statistics import LOSSES, OF

#: Maximum number of losses that are kept between two measurements.
MAX_LOSSES = 10_000


class Losses:
    """Losses of the steps since the last measurement, added to the next one as their median and maximum."""

    def __init__(self) -> None:
        self._pending_losses: list[float] = []
        #: By the names of a measurement: the same names followed by those of the loss quantities.
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, step: Step) -> None:
        """Add the loss of a step, if it is known."""
        if step.loss is not None and len(self._pending_losses) < MAX_LOSSES:
            self._pending_losses.append(step.loss)

    def with_losses(self, measured: Measured) -> Measured:
        """Return `measured` with the median and maximum loss of the steps since the last measurement.

        Both are NaN if any of these losses is not finite.
        """
        losses, self._pending_losses = self._pending_losses, []
        if not losses:
            return measured
        names = self._names.get(measured.names)
        if names is None:
            if len(self._names) > 100:
                self._names.clear()
            names = self._names[measured.names] = (*measured.names, *(f"{quantity}{OF}loss" for quantity in LOSSES))
        finite = all(loss - loss == 0.0 for loss in losses)
        summary = (median(losses), max(losses)) if finite else (float("nan"), float("nan"))
        return Measured(measured.step, names, array("f", (*measured.values, *summary)))
