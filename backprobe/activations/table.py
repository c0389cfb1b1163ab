"""What was captured, as rows, and those as text and as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..torchside import modes


@dataclass(frozen=True)
class Row:
    """One tensor. Range, mean and deviation are those of its finite values; None where there are no numbers."""

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


def row_of(name: str, made_by: str, tensor: Any) -> Row:
    """Measure one tensor. A complex one is measured by its absolute values."""
    shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
    try:
        with modes.unseen(), torch.no_grad():
            x = tensor.detach()
            x = x.abs() if x.is_complex() else x
            x = x.double() if x.dtype is torch.float64 or not x.is_floating_point() else x.float()
            finite = torch.isfinite(x)
            bad = x.numel() - int(finite.sum())
            if bad:
                x = x[finite]
            if not x.numel():
                return Row(name, made_by, shape, dtype, nonfinite=bad)
            low, high = torch.aminmax(x)
            mean = x.mean()
            deviation = (x - mean).square().mean().sqrt()
            return Row(name, made_by, shape, dtype, float(low), float(high), float(mean), float(deviation), bad)
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, quantized, meta, nested
        return Row(name, made_by, shape, dtype)


HEAD = ("name", "made by", "shape", "dtype", "range", "mean", "deviation", "non-finite")
#: Columns of numbers, set to the right.
_RIGHT = frozenset({4, 5, 6, 7})


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if math.isfinite(value) else str(value)


def cells(row: Row) -> tuple[str, ...]:
    reach = "-" if row.low is None else f"{number(row.low)} to {number(row.high)}"
    shape = "x".join(map(str, row.shape)) or "scalar"
    bad = str(row.nonfinite) if row.nonfinite else "0" if row.low is not None else "-"
    return (row.name or "(model)", row.made_by, shape, row.dtype, reach, number(row.mean), number(row.deviation), bad)


def text_table(head: Sequence[str], body: Sequence[Sequence[str]], right: frozenset[int] = _RIGHT) -> str:
    """Columns as wide as they need to be; names are never cut, they are what one types."""
    if not body:
        return ""
    widths = [max(len(r[i]) for r in (head, *body)) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in (head, *body)
    )


def html_table(head: Sequence[str], body: Sequence[Sequence[str]], right: frozenset[int] = _RIGHT) -> str:
    """A table for notebooks. Everything is escaped."""

    def line(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="text-align:{"right" if i in right else "left"}">{html.escape(c)}</{tag}>'
            for i, c in enumerate(row)
        )

    rows = "".join(f"<tr>{line('td', row)}</tr>" for row in body)
    return f"<table><thead><tr>{line('th', head)}</tr></thead><tbody>{rows}</tbody></table>"


def grouped(said: dict[str, str], limit: int = 4) -> list[str]:
    """One line for each reason, with the first names that it holds for."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in said.items():
        by_reason.setdefault(reason, []).append(name or "(model)")
    found = []
    for reason, names in by_reason.items():
        more = f" and {len(names) - limit} more" if len(names) > limit else ""
        found.append(f"{', '.join(names[:limit])}{more}: {reason}")
    return found
