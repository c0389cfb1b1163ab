"""Captured tensors as rows of a table."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...basics.text import few, number, shape
from ...torch_internals import modes
from ...torch_internals.norms import norm


@dataclass(frozen=True)
class Row:
    """A tensor's row. Range, mean and deviation cover its finite values; None if it has no numbers."""

    name: str
    #: Class of the module, or name of the function.
    made_by: str
    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    #: Standard deviation, with division by the number of values.
    deviation: float | None = None
    #: Values that are NaN or infinite.
    nonfinite: int = 0


def row_of(name: str, made_by: str, tensor: torch.Tensor) -> Row:
    """Measure one tensor. A complex one is measured by its absolute values."""
    sizes, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
    try:
        with modes.disable_function_modes(), torch.no_grad():
            x = tensor.detach()
            x = x.abs() if x.is_complex() else x
            x = x.float() if x.device.type == "mps" else x.double()  # squares of single precision overflow early
            finite = torch.isfinite(x)
            bad = x.numel() - int(finite.sum())
            if bad:
                x = x[finite]
            if not x.numel():
                return Row(name, made_by, sizes, dtype, nonfinite=bad)
            low, high = torch.aminmax(x)
            mean = x.mean()
            deviation = norm(x - mean) / math.sqrt(x.numel())
            return Row(name, made_by, sizes, dtype, float(low), float(high), float(mean), deviation, bad)
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, quantized, meta, nested
        return Row(name, made_by, sizes, dtype)


HEAD = ("name", "made by", "shape", "dtype", "range", "mean", "deviation", "non-finite")
#: Columns of numbers, set to the right.
RIGHT = frozenset({4, 5, 6, 7})


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row as text, in the order of ``HEAD``."""
    reach = "-" if row.low is None else f"{number(row.low)} to {number(row.high)}"
    bad = str(row.nonfinite) if row.nonfinite else "0" if row.low is not None else "-"
    what = (row.name or "(model)", row.made_by, shape(row.shape), row.dtype)
    return (*what, reach, number(row.mean), number(row.deviation), bad)


def grouped(said: dict[str, str], limit: int = 4) -> list[str]:
    """Return a line for each reason, with the first names to which it applies."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in said.items():
        by_reason.setdefault(reason, []).append(name or "(model)")
    return [f"{few(names, limit)}: {reason}" for reason, names in by_reason.items()]
