"""The operator table: what each operator of torch does, under each of its names. It does not import torch.

>>> info("masked_fill_") is info("MaskedFillBackward0") is info("aten::masked_fill.Scalar")
True
>>> info("MaskedFillBackward0").is_fill
True
"""

from __future__ import annotations

from .info import EDGES, FINITE, GAPS, NORMALISES, OVERFLOWS, POLE, ZERO, ConditionalWrite, OpInfo
from .names import canonical, canonical_names, info, names_of, overwrites, rows, writes_in_place

__all__ = [
    "EDGES",
    "FINITE",
    "GAPS",
    "NORMALISES",
    "OVERFLOWS",
    "POLE",
    "ZERO",
    "ConditionalWrite",
    "OpInfo",
    "canonical",
    "canonical_names",
    "info",
    "names_of",
    "overwrites",
    "rows",
    "writes_in_place",
]
