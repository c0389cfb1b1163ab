"""What modules put out in one step, until there is no more of it.

Note [Small outputs wait]: an operation between those of the script takes several times as long as one after its like,
and of small outputs that is most of it. So small ones are measured some at a time, where in the look before nothing
had written to them until then; else at once. On an accelerator none waits: another stream would be a race.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import truediv
from typing import Any

import torch

from ...torch_internals import private
from .numbers import HALF, Numbers, extremes, greatest, norms, zeros

#: Elements of an output that may wait, and outputs that wait at one time.
SMALL, TOGETHER = 1 << 16, 16


class Held:
    """Outputs that wait."""

    def __init__(self) -> None:
        #: With the names of their modules, and their versions.
        self._held: list[tuple[str, Any, int]] = []
        #: Modules nothing had written to the outputs of.
        self._stay: set[str] = set()

    def take(self, name: str, output: Any) -> bool:
        """Whether it waits. If not, it may in the next look."""
        if not output.is_cpu or output.numel() > SMALL:
            return False
        self._held.append((name, output, output._version))
        return name in self._stay

    @property
    def full(self) -> bool:
        return len(self._held) >= TOGETHER

    def release(self) -> Iterable[tuple[list[str], list[Any]]]:
        """Those that waited, by dtype. One that was written to is none of them, and its module's wait no more."""
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
    """What was measured of tensors of one device and dtype, and is put together when no more come: so that what is done
    with it is a few operations for all of them."""

    __slots__ = ("bounds", "maxima", "names", "norms", "sizes", "units")

    def __init__(self) -> None:
        #: Of outputs: names, elements, norms, and what the greatest follows from.
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.norms: list[Any] = []
        self.bounds: list[tuple[Any, ...]] = []
        #: Behind a relu: whose units, and the greatest value of each of them.
        self.units: list[str] = []
        self.maxima: list[Any] = []

    def add(self, names: Sequence[str], outputs: Sequence[Any], closely: bool) -> None:
        """`closely`: the greatest element is asked for too. Of half precision it always is, for how far it may grow."""
        lengths = norms(outputs)
        bounds = [extremes(output) for output in outputs] if closely or outputs[0].dtype in HALF else ()
        self.names += names
        self.norms += lengths
        self.bounds += bounds
        self.sizes += [output.numel() for output in outputs]

    def behind_relu(self, name: str, maxima: Any) -> None:
        self.maxima.append(maxima)
        self.units.append(name)

    def tell(self, dtype: torch.dtype, numbers: Numbers) -> None:
        bounds = list(zip(*self.bounds, strict=True))
        if self.names:
            roots = [math.sqrt(size) for size in self.sizes]
            numbers.add("activation_rms", self.names, self.norms, then=lambda norms: list(map(truediv, norms, roots)))
        if self.bounds:
            numbers.add("activation_max", self.names, *bounds, then=greatest)
            if dtype in HALF:
                limit = torch.finfo(dtype).max
                numbers.add(
                    "headroom", self.names, *bounds, then=lambda *b: [limit / max(top, 1e-30) for top in greatest(*b)]
                )
        if self.units:
            each = [units.numel() for units in self.maxima]
            numbers.add("dead", self.units, zeros(self.maxima), then=lambda dead: list(map(truediv, dead, each)))
