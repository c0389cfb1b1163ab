"""What modules put out in one step, until there is no more of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import truediv
from typing import Any

import torch

from .numbers import HALF, Numbers, extremes, greatest, norms, zeros


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

    def add(self, names: Sequence[str], outputs: Sequence[Any]) -> None:
        lengths, bounds = norms(outputs), [extremes(output) for output in outputs]
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
            numbers.add("activation_max", self.names, *bounds, then=greatest)
            if dtype in HALF:
                limit = torch.finfo(dtype).max
                numbers.add(
                    "headroom", self.names, *bounds, then=lambda *b: [limit / max(top, 1e-30) for top in greatest(*b)]
                )
        if self.units:
            each = [units.numel() for units in self.maxima]
            numbers.add("dead", self.units, zeros(self.maxima), then=lambda dead: list(map(truediv, dead, each)))
