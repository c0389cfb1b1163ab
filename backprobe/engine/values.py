"""Describes gradients as numbers and words, without side effects: no graph, no random numbers, no modes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_internals import private
from ..torch_internals.measure import dtype_name, shape_of


@contextmanager
def looking() -> Iterator[None]:
    """Run torch calls inside without building a graph and without the user's modes."""
    with torch.no_grad(), private.disable_function_modes(), private.no_dispatch_modes():
        yield


def _values(tensor: torch.Tensor | None) -> Any:
    """Return the elements of `tensor` that this process can read, as a tensor without a graph; ``None`` if there are
    none.
    """
    tensor = None if tensor is None or private.is_partial(tensor) else private.local(tensor)
    if tensor is None or private.is_batched(tensor) or tensor.is_meta or tensor.is_nested:
        return None
    tensor = tensor.detach()
    if tensor.layout is torch.strided:
        return tensor
    return tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.to_dense()


def norm(tensors: Iterable[torch.Tensor]) -> float:
    """Return the 2-norm of all elements of `tensors` together, in double precision, so that no square overflows."""
    total = 0.0
    with looking():
        for tensor in tensors:
            values = _values(tensor)
            if values is not None and values.numel() and (values.is_floating_point() or values.is_complex()):
                wide = torch.complex128 if values.is_complex() else torch.float64
                one = float(torch.linalg.vector_norm(values, dtype=wide))
                total = math.hypot(total, one) if math.isfinite(one) else total + one
    return total


def nonfinite(tensors: Iterable[torch.Tensor]) -> int:
    """Count the elements of `tensors` that are NaN or Inf."""
    count = 0
    with looking():
        for tensor in tensors:
            values = _values(tensor)
            if values is not None:
                count += int(values.numel() - values.isfinite().sum())
    return count


def shape_text(tensor: torch.Tensor) -> str:
    """Return dtype and shape of `tensor` as text, such as ``float32[2, 3]``."""
    return f"{dtype_name(tensor.dtype)}[{', '.join(map(str, shape_of(tensor)))}]"


def summary(tensor: torch.Tensor | None) -> str:
    """Describe a gradient in one line: dtype and shape, norm, range, and non-finite values."""
    if tensor is None:
        return "None (no gradient came)"
    text = shape_text(tensor)
    if tensor.device.type != "cpu":
        text += f" on {tensor.device}"
    values = _values(tensor)
    if values is None:
        return f"{text}  values cannot be read here"
    if not values.numel():
        return f"{text}  empty"
    with looking():
        bad = nonfinite([tensor])
        if not (values.is_floating_point() or values.is_complex()):
            return text
        text += f"  norm {norm([tensor]):.4g}"
        if values.is_floating_point() and not bad:
            text += f"  from {float(values.min()):.4g} to {float(values.max()):.4g}"
        if bad:
            nan = int(values.isnan().sum())
            parts = [f"{n} {what}" for n, what in ((nan, "NaN"), (bad - nan, "Inf")) if n]
            text += f"  {' and '.join(parts)} of {values.numel()}"
    return text
