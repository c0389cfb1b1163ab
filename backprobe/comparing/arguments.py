"""Comparison of the non-tensor arguments of two ops."""

from __future__ import annotations

from ..ops import overwrites
from ..records import TapeOp

#: Relative difference below which numbers are equal except for rounding.
CLOSE = 1e-6


def reads(op: TapeOp, slot: int) -> bool:
    """Return whether an op reads its input `slot`, rather than only overwriting it."""
    return slot != 0 or not overwrites(op.name)


def same(one: object, two: object) -> bool:
    """Return whether arguments are equal, ignoring dtypes, devices and layouts."""
    return _walk(one, two, 0.0)


def alike(one: object, two: object) -> bool:
    """Return whether arguments are equal as in ``same``, and numbers equal except for rounding."""
    return _walk(one, two, CLOSE)


def _walk(one: object, two: object, close: float) -> bool:
    """Return whether two arguments are equal, nested ones included.

    :param close: the relative difference of numbers that counts as equal.
    """
    if isinstance(one, (list, tuple)):
        return (
            isinstance(two, (list, tuple))
            and len(one) == len(two)
            and all(_walk(p, q, close) for p, q in zip(one, two, strict=True))
        )
    if isinstance(one, dict):
        if not isinstance(two, dict):
            return False
        if len(one) == 1 and one.keys() == two.keys() and next(iter(one)) in ("dtype", "device", "format", "layout"):
            return True
        skip = ("dtype", "device", "layout", "pin_memory", "memory_format", "non_blocking")
        keys = {k for k in (*one, *two) if k not in skip}
        return all(k in one and k in two and _walk(one[k], two[k], close) for k in keys)
    if isinstance(one, float) or isinstance(two, float):
        if not isinstance(one, (int, float)) or not isinstance(two, (int, float)):
            return False
        return one == two or (one != one and two != two) or abs(one - two) <= close * max(abs(one), abs(two))
    return bool(one == two)
