"""Difference of two gradients: bitwise equality, and distance."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch


def bitwise_equal(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Return whether two gradients are bitwise equal; a NaN equals a NaN of the same bits."""
    if a is None or b is None:
        return a is None and b is None
    if a.shape != b.shape or a.dtype != b.dtype or a.layout is not b.layout:
        return False
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if not a.numel():
        return True
    # A copy, because a tensor of one element can be contiguous with any stride, and then cannot be viewed as bytes.
    one, other = (t.detach().resolve_conj().resolve_neg().reshape(-1) for t in (a, b))
    one, other = (torch.empty(t.shape, dtype=t.dtype, device=t.device).copy_(t).view(torch.uint8) for t in (one, other))
    return bool(torch.equal(one, other))


class Difference(NamedTuple):
    """Distance of gradients from exact ones.

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


def difference(found: torch.Tensor | None, exact: torch.Tensor | None) -> Difference | None:
    """Return the distance of `found` from `exact`, in double precision; ``None`` if they cannot be compared.

    Elements that are non-finite in the same way do not differ.
    """
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
    """Combine the differences of several gradients of one node into one; ``None`` if none is known."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    norm, exact = math.hypot(*(p.norm for p in known)), math.hypot(*(p.exact for p in known))
    return Difference(max(p.largest for p in known), norm, exact)
