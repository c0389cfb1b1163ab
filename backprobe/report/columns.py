"""Numeric columns for the page: a type and the base64 of little-endian bytes. See ``page/src/data/document.ts``."""

from __future__ import annotations

import base64
import json
import math
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..basics.privacy import private_values

#: Stands for a norm that was not measured.
MISSING = -1.0
_TYPES = {"f": "f32", "d": "f64", "i": "i32", "B": "u8"}
#: Type of a column -> type code of ``array``.
CODES = {name: code for code, name in _TYPES.items()}
#: Range in which single precision has full accuracy.
_MIN_FLOAT32, _MAX_FLOAT32 = 1.2e-38, 3.4e38


class Column(dict[str, str]):
    """A packed column: its type and its bytes. The class distinguishes a column from a dict of the user."""


def column(code: str, values: Iterable[Any]) -> Column:
    """Pack `values`; `code` is a type code of ``array``: f, d, i or B."""
    made = values if isinstance(values, array) and values.typecode == code else array(code, values)
    if sys.byteorder == "big":
        made = array(code, made)
        made.byteswap()
    return Column(t=_TYPES[code], b=base64.b64encode(made.tobytes()).decode())


def norms(values: Iterable[float | None]) -> Column:
    """Pack norms in single precision, or in double if one is out of its range, so that 0 and infinity keep their
    meaning.

    ``None``, not measured, becomes ``MISSING``.
    """
    return reals([MISSING if v is None else v for v in values])


def reals(values: Sequence[float]) -> Column:
    """Pack numbers of either sign, in single or double precision as ``norms`` does."""
    wide = any(0.0 < abs(v) < _MIN_FLOAT32 or _MAX_FLOAT32 < abs(v) < math.inf for v in values)
    return column("d" if wide else "f", values)


def text(value: object) -> str:
    """Return `value`, a part of a document, as compact JSON, with secrets masked and the home folder replaced."""
    return json.dumps(private_values(value, Column), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def clean(value: object) -> Any:
    """Return `value` in a form that JSON can hold: non-finite numbers and unknown objects become text."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, (str, int, bool, type(None))):
        return value
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(v) for v in value]
    return str(value)
