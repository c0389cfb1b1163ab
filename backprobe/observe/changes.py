"""Validation of ``--override`` before the script starts. No torch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..basics.errors import BackprobeError

KINDS = ("dtype", "compiled", "device", "seed", "threads")


def check(given: Sequence[str]) -> None:
    """Check that each of `given` is a valid override, ``KIND=VALUE``.

    :raises BackprobeError: one is invalid, as far as can be told without torch.
    """
    for one in given:
        kind, _, value = one.partition("=")
        if kind not in KINDS:
            raise BackprobeError(f"no change {kind!r}: there are {', '.join(KINDS)}")
        if kind == "dtype" and not re.fullmatch(r"b?float\w*|double|half", value):
            raise no_dtype(value)
        if kind in ("seed", "threads") and not value.isdigit():
            raise BackprobeError(f"{kind} is {value!r}; it is a whole number")


def no_dtype(value: str) -> BackprobeError:
    """Return the error for an override whose value is no dtype of floats."""
    return BackprobeError(f"{value} is no dtype of floats, such as float64 or bfloat16")
