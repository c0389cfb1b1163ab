"""Numbers as the page reads them: a type and the base64 of little-endian bytes. See ``page/src/data/document.ts``."""

from __future__ import annotations

import base64
import json
import math
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..privacy import private_values

#: A norm that was not measured.
MISSING = -1.0
_TYPES = {"f": "f32", "d": "f64", "i": "i32", "B": "u8"}
#: The code of ``array`` by the type of a column.
CODES = {name: code for code, name in _TYPES.items()}
#: What single precision has all its digits for.
_LEAST, _MOST = 1.2e-38, 3.4e38


class Column(dict[str, str]):
    """A packed column: its type and its bytes. A class of its own tells it from what users wrote."""


def column(code: str, values: Iterable[Any]) -> Column:
    """`values` packed; `code` is that of ``array``: f, d, i or B."""
    made = values if isinstance(values, array) and values.typecode == code else array(code, values)
    if sys.byteorder == "big":
        made = array(code, made)
        made.byteswap()
    return Column(t=_TYPES[code], b=base64.b64encode(made.tobytes()).decode())


def norms(values: Iterable[float | None]) -> Column:
    """Norms in single precision, in double where one of them is out of its range: 0 means 0, infinite infinite."""
    return reals([MISSING if v is None else v for v in values])


def reals(values: Sequence[float]) -> Column:
    """The same for numbers of either sign."""
    wide = any(0.0 < abs(v) < _LEAST or _MOST < abs(v) < math.inf for v in values)
    return column("d" if wide else "f", values)


def text(value: Any) -> str:
    """JSON of `value`, a part of a document, as short as it can be."""
    return json.dumps(private_values(value, Column), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def clean(value: Any) -> Any:
    """`value` as JSON knows it: numbers that are not finite as text, what is unknown as its text."""
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
