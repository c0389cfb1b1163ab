"""Inspected tensors (histograms and maps) as a document for the page."""

from __future__ import annotations

import math

from ..records import TensorSeen
from ..traces import Trace
from .columns import clean, column, reals
from .tables import Modules


def tensors(trace: Trace, modules: Modules) -> list[dict[str, object]]:
    """Return all tensors recorded for histograms as documents for the page."""
    return [_row(t, modules) for t in trace.facts.of(TensorSeen)]


def _row(seen: TensorSeen, modules: Modules) -> dict[str, object]:
    """Return one tensor as plain data: histogram, statistics, and the map of its values if it has one."""
    rows = len(seen.picture)
    return {
        "name": seen.name,
        "kind": seen.kind,
        "module": modules.of(seen.module),
        "step": seen.step,
        "shape": list(seen.shape),
        "dtype": seen.dtype,
        "edges": reals(seen.edges),
        "counts": column("d", seen.counts),
        "mean": clean(seen.mean),
        "std": clean(seen.std),
        "min": clean(seen.low),
        "max": clean(seen.high),
        "zeros": seen.zeros,
        "nan": seen.nan,
        "inf": seen.inf,
        "numel": math.prod(seen.shape),
        "map": {
            "rows": rows,
            "columns": len(seen.picture[0]),
            "values": reals([v for row in seen.picture for v in row]),
        }
        if rows
        else None,
    }
