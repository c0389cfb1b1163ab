"""Measure tensors: one pass for a norm, and a closer look where the norm is suspicious."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..records import BadValues, TensorStat

_norm = torch.linalg.vector_norm
_FLOATS = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.complex32}
)
#: How many positions of bad elements a record names.
FIRST = 3


def norm_of(tensor: Any) -> float | None:
    """2-norm of a CPU tensor; ``None`` where it has none (integers, meta, fake or wrapped tensors).

    A NaN or Inf in the tensor shows in the result. The converse does not hold: the square can overflow.
    """
    try:
        return float(_norm(tensor))
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def is_float(tensor: Any) -> bool:
    return tensor.dtype in _FLOATS


def suspicious(norm: float | None) -> bool:
    return norm is not None and not math.isfinite(norm)


def bad_values(tensor: Any) -> BadValues | None:
    """The non-finite elements of `tensor`, or ``None`` where there are none. Slow: for suspects only."""
    if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    with torch.no_grad():
        try:
            values = tensor.detach()
            if values.layout is not torch.strided:
                values = values.coalesce().values() if values.layout is torch.sparse_coo else values.values()
            wrong = ~torch.isfinite(values)
            if not bool(wrong.any()):
                return None
            nan = int(torch.isnan(values).sum())
            total = int(wrong.sum())
            first = tuple(tuple(int(i) for i in row) for row in wrong.nonzero()[:FIRST].tolist())
        except (RuntimeError, NotImplementedError):
            return None
    return BadValues(nan, total - nan, values.numel(), tuple(tensor.shape), first)


def stat_of(name: str, tensor: torch.Tensor) -> TensorStat:
    zeros = None
    with torch.no_grad():
        if tensor.layout is torch.strided and tensor.numel():
            try:
                zeros = int((tensor.detach() == 0).sum())
            except (RuntimeError, NotImplementedError):
                zeros = None
    return TensorStat(name, tuple(tensor.shape), dtype_name(tensor.dtype), bad_values(tensor), zeros)


def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
