"""The difference of two gradients: whether they agree bit for bit, and how far they are from each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch


def bitwise_equal(a: Any, b: Any) -> bool:
    """Whether two gradients agree bit for bit; a NaN is equal to a NaN of the same bits."""
    if a is None or b is None:
        return a is None and b is None
    if a.shape != b.shape or a.dtype != b.dtype or a.layout is not b.layout:
        return False
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if not a.numel():
        return True
    # A copy: a tensor of one element can be contiguous with any stride, and cannot be seen as bytes then.
    one, other = (t.detach().resolve_conj().resolve_neg().reshape(-1) for t in (a, b))
    one, other = (torch.empty(t.shape, dtype=t.dtype, device=t.device).copy_(t).view(torch.uint8) for t in (one, other))
    return bool(torch.equal(one, other))


class Difference(NamedTuple):
    """How far gradients are from exact ones.

    :ivar largest: the largest difference of two elements.
    :ivar norm: the norm of the difference.
    :ivar exact: the norm of the exact ones.
    """

    largest: float
    norm: float
    exact: float

    @property
    def error(self) -> float:
        """``norm`` relative to ``exact``."""
        return self.norm / self.exact if self.exact else (0.0 if self.norm == 0.0 else math.inf)


def difference(found: Any, exact: Any) -> Difference | None:
    """How far `found` is from `exact`, in double precision. ``None`` where there is nothing to compare. Elements that
    are non-finite in the same way do not differ."""
    if found is None or exact is None or found.is_nested or found.shape != exact.shape:
        return None
    with torch.no_grad():
        a, b = (t.detach().to_dense() if t.layout is not torch.strided else t.detach() for t in (found, exact))
        a, b = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (a, b))
        if not a.numel():
            return Difference(0.0, 0.0, 0.0)
        equal = (a == b) | (a.isnan() & b.isnan())
        off = (a - b).masked_fill(equal, 0.0)
        norm, size = map(float, map(torch.linalg.vector_norm, (off, b.masked_fill(~b.isfinite(), 0.0))))
        return Difference(float(off.abs().max()), norm, size)


def combined(parts: Iterable[Difference | None]) -> Difference | None:
    """Several gradients of one node as one."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    norm, exact = math.hypot(*(p.norm for p in known)), math.hypot(*(p.exact for p in known))
    return Difference(max(p.largest for p in known), norm, exact)
