"""Curves for trackers from a measurement of all layers: their names and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

from ..basics.select import selector
from ..records import Measured
from ..records.statistics import OF

#: Maximum number of curves of a run; of these, the number reserved for curves over all layers.
LIMIT, TOGETHER = 500, 100
#: Quantities of modules and optimizers; all others belong to parameters, and so to the module that has them.
_OF_ITSELF = frozenset(
    {
        *("activation_rms", "activation_max", "headroom", "dead", "saturated"),
        *("attention_logit", "attention_entropy", "router_max", "router_idle"),
        *("lr", "loss_scale", "clip_factor", "noise_scale", "micro_batches"),
    }
)


def numbers_of(measured: Measured, layers: Callable[[str, object], bool] | None = None) -> dict[str, float]:
    """Return the values to send to an experiment tracker for a measurement.

    These are minimum, maximum and median of each quantity over the layers, and the values of chosen layers. Non-finite
    values are left out and counted.
    """
    found: dict[str, float] = {}
    by_quantity: dict[str, list[float]] = {}
    lost = 0
    for key, value in zip(measured.names, measured.values, strict=True):
        quantity, _, name = key.partition(OF)
        if not math.isfinite(value):
            lost += 1
            continue
        by_quantity.setdefault(quantity, []).append(value)
        if layers is not None and layers(name, None):
            found[f"backprobe/{quantity}/{name}"] = value
    for quantity, values in by_quantity.items():
        found[f"backprobe/{quantity}/max"] = max(values)
        if len(values) > 1:
            found[f"backprobe/{quantity}/min"] = min(values)
            found[f"backprobe/{quantity}/median"] = median(values)
    if lost:
        found["backprobe/nonfinite"] = float(lost)
    return found


class Chosen:
    """The choice of curves of a run for a tracker.

    Curves over all layers are always sent. Of single layers, those whose names match are sent; without globs, whole
    layers in the order of the model as far as they fit into `limit` curves. A curve that was begun is continued.

    :param globs: on ``QUANTITY/NAME``, with or without ``backprobe/`` before it.
    """

    def __init__(self, globs: Sequence[str] = (), limit: int = LIMIT) -> None:
        """Start without curves.
        :param globs: names of the curves to send in addition to the usual ones.
        :param limit: the most curves.
        """
        bare = [glob.removeprefix("backprobe/") for glob in globs]
        self._named = selector(bare) if bare else None
        self._room = limit - TOGETHER
        self._taken: set[str] = set()
        self._layers: set[str] = set()
        self._full = False
        #: Names of everything that was measured, and of curves that no tracker gets.
        self._seen: set[str] = set()

    def of(self, measured: Measured) -> dict[str, float]:
        """Return the values of a measurement to send, by the name of their curve."""
        by_layer: dict[str, list[tuple[str, float]]] = {}
        for key, value in zip(measured.names, measured.values, strict=True):
            quantity, _, name = key.partition(OF)
            layer = name if quantity in _OF_ITSELF else name.rpartition(".")[0]
            by_layer.setdefault(layer, []).append((f"{quantity}/{name}", value))
        found = {}
        for layer, numbers in by_layer.items():
            self._take(layer, [key for key, _ in numbers])
            for key, value in numbers:
                if key in self._taken and math.isfinite(value):
                    found[f"backprobe/{key}"] = value
        return {**found, **numbers_of(measured)}

    @property
    def left_out(self) -> int:
        """Number of curves that the tracker does not get."""
        return len(self._seen) - len(self._taken)

    def _take(self, layer: str, keys: list[str]) -> None:
        """Decide for the curves `keys` of a layer that are new whether they are sent."""
        new = [key for key in keys if key not in self._seen]
        self._seen.update(new)
        if self._named is not None:
            self._taken.update(key for key in new if self._named(key, None))
        elif layer in self._layers:
            self._taken.update(new[: max(self._room - len(self._taken), 0)])
        elif new and not self._full:
            self._full = len(self._taken) + len(new) > self._room
            if not self._full:
                self._layers.add(layer)
                self._taken.update(new)
