"""Outliers among the layer statistics of a run: the largest values, the fastest growth, and the alarms so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .. import thresholds
from ..basics.text import number
from ..findings.levels.alarms import Alarm, Monitor
from ..records import Measured
from ..records.statistics import LOSSES, OF

#: Maximum number of measurements in a curve; above it, every other one is dropped.
CURVE = 120
#: Quantities that are meaningful only for matrices: a bias that began at zero can have any ratio.
_MATRICES = ("update_ratio", "weight_rms", "adam_ratio")
#: Quantities whose smallest value is of interest.
SMALLEST_MATTERS = frozenset(("headroom", "attention_entropy", "stable_rank", "clip_factor"))
#: Quantities that are fractions, and the minimum fraction of a layer that is shown.
SHARES = frozenset(("dead", "saturated", "unchanged", "grad_zeros", "grad_nonfinite", "router_idle"))
MIN_SHARE = 0.005
#: Description of each quantity, most important first.
WORDS = {
    "update_ratio": "update / weight",
    "activation_rms": "RMS of activations",
    "attention_logit": "greatest attention logit",
    "attention_entropy": "attention entropy, nats",
    "weight_rms": "RMS of the weight",
    "weight_gain": "gain of the weight",
    "loss_median": "median loss since the last look",
    "loss_max": "greatest loss since the last look",
    "adam_ratio": "gradient / root of Adam's second moment",
    "dead": "units that are zero",
    "saturated": "saturated values",
    "router_max": "load of the most loaded expert, 1 if balanced",
    "router_idle": "experts that nothing goes to",
    "headroom": "room above activations",
    "unchanged": "elements left as they were",
    "grad_norm": "gradient norm",
    "grad_rms": "RMS of the gradient",
    "grad_max": "greatest gradient",
    "grad_zeros": "zeros in the gradient",
    "grad_nonfinite": "NaN or Inf in the gradient",
    "activation_max": "greatest activation",
    "weight_norm": "weight norm",
    "update_norm": "update norm",
    "update_rms": "RMS of the update",
    "stable_rank": "stable rank",
    "lr": "learning rate",
    "clip_factor": "share of the gradient norm left by clipping",
    "noise_scale": "gradient noise scale, micro batches",
    "micro_batches": "micro batches of a step",
    "loss_scale": "loss scale",
}
#: Quantities that are shown, in this order, by value; then a second time by growth.
_SHOWN_QUANTITIES = (
    *("update_ratio", "adam_ratio", "unchanged", "activation_rms", "headroom", "dead", "saturated"),
    *("attention_logit", "attention_entropy", "router_max", "router_idle", "weight_rms"),
)
_GROWTH = ("activation_rms", "weight_rms", "attention_logit")
#: Minimum growth, as a multiple of the first measurements, for a layer to be shown for its growth.
GROWTH_BOUNDS = 1.5


def words(quantity: str) -> str:
    """Return a description of `quantity` in words."""
    return WORDS.get(quantity, quantity.replace("_", " "))


def value_text(quantity: str, value: float) -> str:
    """Return a value as text; fractions as percentages."""
    return f"{100 * value:.3g}%" if quantity in SHARES and math.isfinite(value) else number(value)


def alarm_text(alarm: Alarm) -> str:
    """Return an alarm as one line of text."""
    against = f", held against {value_text(alarm.quantity, alarm.before)}" if math.isfinite(alarm.before) else ""
    value = value_text(alarm.quantity, alarm.value)
    what = words(alarm.quantity).partition(",")[0]  # without its unit
    lasts = f"{value} in step {alarm.step}{against}; since step {alarm.since}"
    if alarm.quantity in LOSSES:
        with_it = "" if alarm.name == "loss" else f"; {alarm.name} changed with it"
        return f"{what} is {lasts}{with_it}"
    return f"{what} of {alarm.name} is {lasts}"


@dataclass(frozen=True)
class Standing:
    """A layer that stands out in `quantity`: its last value, and the median of its first measurements if there were
    enough. ``curve``: one value for each measurement, NaN if missing.
    """

    quantity: str
    name: str
    value: float
    first: float | None
    curve: Sequence[float]

    @property
    def growth(self) -> float | None:
        """The value relative to the first one; ``None`` if that is not known, not positive, or infinite."""
        return None if self.first is None or not 0 < self.first < math.inf else self.value / self.first


class Levels:
    """Collects statistics by layer one measurement after the other, and says which layers stand out."""

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []
        self.looks = 0
        #: The step of the last measurement.
        self.step = -1
        self._monitor = Monitor()
        self._now: dict[str, float] = {}
        self._first: dict[str, list[float]] = {}
        self._kept: list[Measured] = []
        self._stride = 1

    def add(self, look: Measured) -> None:
        """Add a measurement; of a long run, every other one is dropped from the curves."""
        self.alarms += self._monitor.add(look)
        for name, value in zip(look.names, look.values, strict=True):
            self._now[name] = value
            if (
                look.step >= thresholds.LEVELS_FIRST_STEP
                and len(first := self._first.setdefault(name, [])) < thresholds.LEVELS_EARLY_LOOKS
            ):
                first.append(value)
        if self.looks % self._stride == 0:
            self._kept.append(look)
            if len(self._kept) > CURVE:
                del self._kept[1::2]
                self._stride *= 2
        self.looks += 1
        self.step = look.step

    def of(self, quantity: str) -> dict[str, float]:
        """Return the last value of `quantity` for each layer."""
        begin = f"{quantity}{OF}"
        return {name[len(begin) :]: value for name, value in self._now.items() if name.startswith(begin)}

    @property
    def standing(self) -> list[Standing]:
        """The layers that stand out: the extreme one for each quantity, and those that grew most."""
        matrices = self.of("stable_rank")
        chosen: dict[tuple[str, str], None] = {}
        for quantity in _SHOWN_QUANTITIES:
            values = self.of(quantity)
            if quantity in _MATRICES:
                values = {name: value for name, value in values.items() if name in matrices}
            if not values:
                continue
            pick = min if quantity in SMALLEST_MATTERS else max
            name = pick(values, key=lambda name: _order(values[name], quantity in SMALLEST_MATTERS))
            if quantity not in SHARES or not values[name] < MIN_SHARE:
                chosen[quantity, name] = None
            if quantity in _GROWTH:
                grown = {name: self._growth(quantity, name) for name in values}
                most = max(grown, key=lambda name: _order(grown[name], False))
                if grown[most] >= GROWTH_BOUNDS:
                    chosen[quantity, most] = None
        return [self._standing(*one) for one in chosen]

    def _growth(self, quantity: str, name: str) -> float:
        """Return the last value relative to the first ones; 0 if there are too few of these."""
        first = self._before(f"{quantity}{OF}{name}")
        return self._now[f"{quantity}{OF}{name}"] / first if first and first > 0 else 0.0

    def _before(self, key: str) -> float | None:
        """Return the median of the first measurements of a value; ``None`` if there are too few."""
        first = self._first.get(key, ())
        return median(first) if len(first) == thresholds.LEVELS_EARLY_LOOKS else None

    def _standing(self, quantity: str, name: str) -> Standing:
        """Return the record of a layer that stands out, with its curve."""
        key = f"{quantity}{OF}{name}"
        places: dict[tuple[str, ...], int] = {}
        curve = []
        for look in self._kept:
            if look.names not in places:
                places[look.names] = look.names.index(key) if key in look.names else -1
            at = places[look.names]
            curve.append(math.nan if at < 0 else look.values[at])
        return Standing(quantity, name, self._now[key], self._before(key), curve)


def _order(value: float, least: bool) -> tuple[bool, float]:
    """Sort key of values: non-finite ones count as the most extreme, in the direction that is of interest.

    :param least: the smallest value is of interest.
    """
    bad = not math.isfinite(value)
    return (bad != least, 0.0 if bad else value)
