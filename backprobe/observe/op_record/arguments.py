"""The arguments of an op as JSON, complete enough to call the op again."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...torch_internals.measure import dtype_name


def as_json(value: object, tensor: Callable[[object], int]) -> object:
    """Return `value` as JSON. A tensor becomes ``{"t": tensor(value)}``."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, torch.Tensor):
        return {"t": tensor(value)}
    if isinstance(value, (int, torch.SymInt)):
        return int(value)
    if isinstance(value, (float, torch.SymFloat)):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [as_json(one, tensor) for one in value]
    if isinstance(value, complex):
        return {"c": [value.real, value.imag]}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.memory_format):
        return {"format": dtype_name(value)}
    if isinstance(value, torch.layout):
        return {"layout": dtype_name(value)}
    return {"other": type(value).__name__}
