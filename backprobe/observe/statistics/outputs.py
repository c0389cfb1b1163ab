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

import torch

from ...torch_internals import private
from .numbers import HALF_DTYPES, Numbers, count_zeros, extremes, max_abs, norms

#: Maximum number of elements of an output that may wait, and maximum number of waiting outputs.
MAX_WAITING_ELEMENTS, MAX_WAITING_OUTPUTS = 1 << 16, 16


class WaitingOutputs:
    """Outputs that wait to be measured together."""

    def __init__(self) -> None:
        #: (module name, output, version counter).
        self._waiting: list[tuple[str, torch.Tensor, int]] = []
        #: Names of modules whose outputs were not written to while they waited.
        self._unwritten_modules: set[str] = set()

    def add(self, name: str, output: torch.Tensor) -> bool:
        """Hold an output, and return whether it waits to be measured; otherwise it is measured now.

        The outputs of a module wait if nothing wrote to the module's output in the previous measurement.
        """
        if not output.is_cpu or output.numel() > MAX_WAITING_ELEMENTS:
            return False
        self._waiting.append((name, output, output._version))
        return name in self._unwritten_modules

    @property
    def is_full(self) -> bool:
        """Whether as many outputs wait as may."""
        return len(self._waiting) >= MAX_WAITING_OUTPUTS

    def release(self) -> Iterable[tuple[list[str], list[torch.Tensor]]]:
        """Return the waiting outputs, as (names, outputs) for each dtype, and forget them.

        Outputs that were written to in the meantime are omitted, and later outputs of their modules are measured at
        once.
        """
        by_dtype: dict[object, tuple[list[str], list[torch.Tensor]]] = {}
        for name, output, version in self._waiting:
            if output._version != version or private.is_freed(output):
                self._unwritten_modules.discard(name)
            elif name in self._unwritten_modules:
                names, outputs = by_dtype.setdefault(output.dtype, ([], []))
                names.append(name)
                outputs.append(output.detach())
            else:
                self._unwritten_modules.add(name)
        self._waiting.clear()
        return by_dtype.values()

    def clear(self) -> None:
        """Forget the waiting outputs."""
        self._waiting.clear()


class Outputs:
    """Measurements of outputs of one device and dtype, which are reduced together at the end of the step."""

    __slots__ = ("bounds", "maxima", "names", "norms", "sizes", "units")

    def __init__(self) -> None:
        """Start without outputs."""
        #: Per output: name, number of elements, norm, and the tensors that give the largest absolute value.
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.norms: list[torch.Tensor] = []
        self.bounds: list[tuple[torch.Tensor, ...]] = []
        #: Per relu: the module's name and the largest value of each unit.
        self.units: list[str] = []
        self.maxima: list[torch.Tensor] = []

    def add(self, names: Sequence[str], outputs: Sequence[torch.Tensor], with_max: bool) -> None:
        """Measure `outputs` of the modules `names`.

        :param with_max: measure the largest absolute value as well. It is always measured in half precision, to compute
            the headroom before overflow.
        """
        lengths = norms(outputs)
        bounds = [extremes(output) for output in outputs] if with_max or outputs[0].dtype in HALF_DTYPES else ()
        self.names += names
        self.norms += lengths
        self.bounds += bounds
        self.sizes += [output.numel() for output in outputs]

    def add_relu_maxima(self, name: str, maxima: object) -> None:
        """Add the largest value of each unit of a relu of the module `name`: a unit whose value is zero is dead."""
        self.maxima.append(maxima)
        self.units.append(name)

    def add_quantities(self, dtype: torch.dtype, numbers: Numbers) -> None:
        """Add what was measured of the outputs, in `dtype`, to the numbers of the step: RMS, maximum, headroom, dead
        units.
        """
        bounds = list(zip(*self.bounds, strict=True))
        if self.names:
            roots = [math.sqrt(size) for size in self.sizes]
            numbers.add(
                "activation_rms", self.names, self.norms, convert=lambda norms: list(map(truediv, norms, roots))
            )
        if self.bounds:
            numbers.add("activation_max", self.names, *bounds, convert=max_abs)
            if dtype in HALF_DTYPES:
                limit = torch.finfo(dtype).max
                numbers.add(
                    "headroom", self.names, *bounds, convert=lambda *b: [limit / max(top, 1e-30) for top in max_abs(*b)]
                )
        if self.units:
            each = [units.numel() for units in self.maxima]
            numbers.add(
                "dead", self.units, count_zeros(self.maxima), convert=lambda dead: list(map(truediv, dead, each))
            )
