"""Distances of values estimated from fingerprints, for tensors that were not saved, or without torch."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Gap, Print, Taken, Tape

#: Smallest relative step of floating-point types.
EPS = {
    "float64": 2.2e-16,
    "float32": 1.2e-7,
    "float16": 9.8e-4,
    "bfloat16": 7.9e-3,
    "complex64": 1.2e-7,
    "complex128": 2.2e-16,
}
#: Maximum error of an op's result, as a multiple of its inputs' error or its type's step.
JUMP = 50.0


def eps_of(one: Print) -> float:
    """Return the relative step of a value's dtype; 0 if it is not a floating-point type."""
    return EPS.get(one.dtype, 0.0)


def distance(x: Sequence[float], y: Sequence[float], one: float | None, two: float | None) -> float | None:
    """Return the relative distance of two tensors, estimated from their sketches; see ``Print``.

    :param x, y: the sketches; ``one``, ``two``: the norms of the tensors.
    :returns: ``None`` if unknown.
    """
    if one is None or two is None:
        return None
    if not one or not two:
        return float(one != two)
    if not x or not y:
        return None
    return float(sum((p - q) ** 2 for p, q in zip(x, y, strict=True)) ** 0.5) / max(one, two)


class Estimate:
    """Estimates distances between the values of two tapes."""

    def __init__(self, a: Tape, b: Tape) -> None:
        self._a, self._b = a, b

    def error(self, mine: int | None, other: int | None) -> float | None:
        """Return the relative distance of two recorded values, estimated from their fingerprints.

        :param mine: the number of a value among those of the first tape; ``other``: of the second.
        :return: ``None`` if one of them was not recorded, the shapes differ, or no sketch tells.
        """
        if mine is None or other is None:
            return None
        x, y = self._a.prints[mine], self._b.prints[other]
        if x.shape != y.shape:
            return None
        return 0.0 if x.hash == y.hash else distance(x.sketch, y.sketch, x.norm, y.norm)

    def gap(self, mine: int | None, other: int | None) -> Gap:
        """Return the estimated difference of two values, and whether it is more than rounding explains."""
        if mine is None or other is None:
            return Gap(None)
        x, y = self._a.prints[mine], self._b.prints[other]
        if x.hash == y.hash:
            return Gap(False, 0.0)
        if x.shape != y.shape:
            return Gap(True, None, "shape")
        error = self.error(mine, other)
        if error is None:
            return Gap(x.bad != y.bad)
        return Gap(error > JUMP * max(eps_of(x), eps_of(y)), error)

    def input_error(self, mine: Sequence[Taken], other: Sequence[Taken]) -> float:
        """Return the largest error among the inputs of two ops."""
        errors = [self.error(x.value, y.value) for x, y in zip(mine, other, strict=False)]
        return max((e for e in errors if e is not None), default=0.0)
