"""Collects the outputs of modules in one step, and measures them in groups.

Note [Small outputs wait]: an operation that is interleaved with the script's operations takes several times as long as
one that directly follows a similar operation, and dominates the cost for small outputs. So small outputs are measured
in groups, if in the previous measurement nothing had written to them before they were measured; otherwise at once. On
an accelerator no output waits: the script may write to it on another stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import truediv
from typing import Any

import torch

from ...torch_internals import private
from .numbers import HALF_DTYPES, Numbers, extremes, greatest, norms, zeros

#: Maximum number of elements of an output that may wait, and maximum number of waiting outputs.
MAX_WAITING_ELEMENTS, MAX_WAITING_OUTPUTS = 1 << 16, 16


class WaitingOutputs:
    """Outputs that wait to be measured together."""

    def __init__(self) -> None:
        #: (module name, output, version counter).
        self._held: list[tuple[str, Any, int]] = []
        #: Names of modules whose outputs were not written to while they waited.
        self._stay: set[str] = set()

    def take(self, name: str, output: Any) -> bool:
        """Return whether an output waits. If not, it may wait in the next measurement."""
        if not output.is_cpu or output.numel() > MAX_WAITING_ELEMENTS:
            return False
        self._held.append((name, output, output._version))
        return name in self._stay

    @property
    def full(self) -> bool:
        return len(self._held) >= MAX_WAITING_OUTPUTS

    def release(self) -> Iterable[tuple[list[str], list[Any]]]:
        """Return the waiting outputs, as (names, outputs) for each dtype, and forget them.

        Outputs that were written to in the meantime are omitted, and later outputs of their modules are measured at
        once.
        """
        together: dict[Any, tuple[list[str], list[Any]]] = {}
        for name, output, version in self._held:
            if output._version != version or private.is_freed(output):
                self._stay.discard(name)
            elif name in self._stay:
                names, outputs = together.setdefault(output.dtype, ([], []))
                names.append(name)
                outputs.append(output.detach())
            else:
                self._stay.add(name)
        self._held.clear()
        return together.values()

    def clear(self) -> None:
        self._held.clear()


class Outputs:
    """Measurements of outputs of one device and dtype, which are reduced together at the end of the step."""

    __slots__ = ("bounds", "maxima", "names", "norms", "sizes", "units")

    def __init__(self) -> None:
        #: Per output: name, number of elements, norm, and the tensors that give the largest absolute value.
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.norms: list[Any] = []
        self.bounds: list[tuple[Any, ...]] = []
        #: Per relu: the module's name and the largest value of each unit.
        self.units: list[str] = []
        self.maxima: list[Any] = []

    def add(self, names: Sequence[str], outputs: Sequence[Any], closely: bool) -> None:
        """Measure `outputs` of the modules `names`.

        :param closely: measure the largest absolute value as well. It is always measured in half precision, to compute
            the headroom before overflow.
        """
        lengths = norms(outputs)
        bounds = [extremes(output) for output in outputs] if closely or outputs[0].dtype in HALF_DTYPES else ()
        self.names += names
        self.norms += lengths
        self.bounds += bounds
        self.sizes += [output.numel() for output in outputs]

    def behind_relu(self, name: str, maxima: object) -> None:
        self.maxima.append(maxima)
        self.units.append(name)

    def add_quantities(self, dtype: torch.dtype, numbers: Numbers) -> None:
        bounds = list(zip(*self.bounds, strict=True))
        if self.names:
            roots = [math.sqrt(size) for size in self.sizes]
            numbers.add("activation_rms", self.names, self.norms, then=lambda norms: list(map(truediv, norms, roots)))
        if self.bounds:
            numbers.add("activation_max", self.names, *bounds, then=greatest)
            if dtype in HALF_DTYPES:
                limit = torch.finfo(dtype).max
                numbers.add(
                    "headroom", self.names, *bounds, then=lambda *b: [limit / max(top, 1e-30) for top in greatest(*b)]
                )
        if self.units:
            each = [units.numel() for units in self.maxima]
            numbers.add("dead", self.units, zeros(self.maxima), then=lambda dead: list(map(truediv, dead, each)))
