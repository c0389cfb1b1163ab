"""Records of tensor values."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from .registry import record


def together(norms: Sequence[float]) -> float:
    """Return the 2-norm of a whole from the norms of its parts: NaN if one is, infinite only if one is."""
    whole = math.hypot(*norms)
    if whole - whole == 0.0:
        return whole
    if any(n != n for n in norms):
        return math.nan
    return math.inf if math.inf in norms else sys.float_info.max


@record
@dataclass(frozen=True, slots=True)
class BadValues:
    """The number of non-finite elements in a tensor, and the indices of the first few."""

    nan: int
    inf: int
    numel: int
    shape: tuple[int, ...]
    first: tuple[tuple[int, ...], ...] = ()

    @property
    def count(self) -> int:
        return self.nan + self.inf

    def __str__(self) -> str:
        if not self.numel:  # seen from its norm only
            return "NaN" if self.nan else "Inf"
        parts = [f"{what} in {n:,}" for n, what in ((self.nan, "NaN"), (self.inf, "Inf")) if n]
        return f"{' and '.join(parts)} of {self.numel:,} elements"


@record
@dataclass(frozen=True, slots=True)
class TensorStat:
    """A tensor's name if it has one, shape, dtype, and unusual values.

    ``made`` is whether an operation of the graph created it, as far as known.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bad: BadValues | None = None
    zeros: int | None = None
    made: bool = False


@record
@dataclass(frozen=True, slots=True)
class TensorSeen:
    """The distribution of a tensor's values in one step.

    ``counts`` are its finite values between ``edges``; ``mean`` to ``high`` are of the finite ones; ``picture`` has
    means over cells of the tensor as a matrix, row by row.

    :ivar kind: ``output`` (of a module), ``weight`` or ``gradient``.
    """

    name: str
    kind: str
    module: str
    step: int
    shape: tuple[int, ...]
    dtype: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    mean: float
    std: float
    low: float
    high: float
    zeros: int
    nan: int
    inf: int
    picture: tuple[tuple[float, ...], ...] = ()
