"""Layer statistics as columns: for each quantity an image of layers against steps, with bounds and alarms."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence

from .. import thresholds
from ..findings.levels.alarms import alarms
from ..findings.levels.bounds import bound, of_matrices, of_the_middle
from ..records import Finding, Measured
from ..records.statistics import OF
from ..traces import Trace
from ..view.outliers import SMALLEST_MATTERS, WORDS, alarm_text, words
from .columns import clean, column
from .tables import Modules, Parameters

#: Maximum number of columns in an image, and of values in all images together; above it, neighbouring measurements
#: share a column.
MAX_COLUMNS, MAX_VALUES = 200, 600_000
#: Stands for an unknown value: levels, such as logits, may be negative.
UNKNOWN = -math.inf


def levels(trace: Trace, modules: Modules, parameters: Parameters) -> dict[str, object] | None:
    """Return the layer statistics as a document; ``None`` if nothing was measured.

    Values of an image come measurement by measurement, so that a growing run appends at the end.
    """
    looks = trace.measured()
    if not looks:
        return None
    names = dict.fromkeys(name for names in {look.names: None for look in looks} for name in names)
    width = _width(len(looks), len(names))
    matrices = {name.partition(OF)[2] for name in names if name.startswith(f"stable_rank{OF}")}
    places = {tuple_: {name: at for at, name in enumerate(tuple_)} for tuple_ in {look.names for look in looks}}
    kinds = []
    for quantity, of in _by_quantity(names, modules, parameters).items():
        keys = [f"{quantity}{OF}{name}" for name in of]
        wanted = {names: [at.get(key, -1) for key in keys] for names, at in places.items()}
        rows = [[UNKNOWN if at < 0 else look.values[at] for at in wanted[look.names]] for look in looks]
        bounded = [not (of_matrices(quantity) and name not in matrices) for name in of]
        kinds.append(
            {
                "quantity": quantity,
                "title": words(quantity),
                "names": list(of),
                "least": quantity in SMALLEST_MATTERS,
                "middle": of_the_middle(quantity),
                "values": column("f", _pictures(rows, width, quantity in SMALLEST_MATTERS)),
                "bound": column("d", _bounds(quantity, looks, rows, bounded)),
            }
        )
    return {
        "steps": column("i", [look.step for look in looks[::width]]),
        "last": looks[-1].step,
        "looks": len(looks),
        "width": width,
        "kinds": kinds,
        "alarms": _alarms(looks, trace.findings),
    }


def _width(looks: int, names: int) -> int:
    """Return how many measurements share a column, so that the images are not too large.

    It is a power of two, so that columns stay the same while a run grows.
    """
    return 1 << max(0, math.ceil(math.log2(max(looks / MAX_COLUMNS, looks * names / MAX_VALUES, 1))))


def _by_quantity(names: Mapping[str, None], modules: Modules, parameters: Parameters) -> Mapping[str, Sequence[str]]:
    """Return for each quantity the layers for which it was measured, in forward order if that is known."""
    found: dict[str, list[str]] = {}
    for key in names:
        quantity, _, name = key.partition(OF)
        found.setdefault(quantity, []).append(name)

    def order(name: str) -> tuple[int, int]:
        """Sort key of layers: place in forward order, as a parameter or as a module."""
        return parameters.of(name), modules.of(name)

    places = {quantity: at for at, quantity in enumerate(WORDS)}
    ordered = sorted(found.items(), key=lambda item: (places.get(item[0], len(places)), item[0]))
    return {quantity: sorted(of, key=order) for quantity, of in ordered}


def _pictures(rows: Sequence[Sequence[float]], width: int, least: bool) -> array[float]:
    """Return one row for each `width` neighbouring measurements, with the worst value of each layer.

    That is NaN if there is one, otherwise the largest known value, or the smallest if `least`.
    """
    made = array("d")
    for begin in range(0, len(rows), width):
        part = rows[begin : begin + width]
        made.extend(part[0] if len(part) == 1 else [_worst(values, least) for values in zip(*part, strict=True)])
    return array("f", made)


def _worst(values: Sequence[float], least: bool) -> float:
    """Return NaN if there is one among the known values, otherwise the largest, or the smallest if `least`."""
    known = [value for value in values if value != UNKNOWN]
    if any(value != value for value in known):
        return math.nan
    return (min(known) if least else max(known)) if known else UNKNOWN


def _bounds(
    quantity: str, looks: Sequence[Measured], rows: Sequence[Sequence[float]], bounded: Sequence[bool]
) -> list[float]:
    """Return for each layer the level beyond which several measurements in a row raise an alarm;
    ``UNKNOWN`` if none.
    """
    first: list[list[float]] = [[] for _ in bounded]
    for look, row in zip(looks, rows, strict=True):
        if look.step >= thresholds.LEVELS_FIRST_STEP:
            for values, value in zip(first, row, strict=True):
                if value != UNKNOWN and len(values) < thresholds.LEVELS_EARLY_LOOKS:
                    values.append(value)
        if all(len(values) == thresholds.LEVELS_EARLY_LOOKS for values in first):
            break
    found = (bound(quantity, values) if yes else None for values, yes in zip(first, bounded, strict=True))
    return [UNKNOWN if one is None else one for one in found]


def _alarms(looks: Sequence[Measured], findings: Sequence[Finding]) -> list[dict[str, object]]:
    """Return the alarms in order, as plain data. ``finding``: index of the finding that reports the alarm, or -1."""
    kinds = [finding.kind for finding in findings]
    return [
        {
            **{"kind": one.kind, "quantity": one.quantity, "name": one.name, "step": one.step, "since": one.since},
            **{"value": clean(one.value), "text": alarm_text(one)},
            "finding": kinds.index(one.kind) if one.kind in kinds else -1,
        }
        for one in alarms(looks)
    ]
