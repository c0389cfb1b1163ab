"""Numbers and names formatted for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from ..basics.text import shape

_BACKWARD = re.compile(r"Backward\d*$")
_END = re.compile(r"^(.*?)(\d+)$")


def plain_type(name: str) -> str:
    """Return ``MulBackward0`` as ``Mul``."""
    return _BACKWARD.sub("", name.rpartition("::")[2]) or name


def sizes(of: Sequence[int]) -> str:
    """Return a shape as text: ``2 x 16 x 64``, or ``scalar``."""
    return shape(of, " x ")


def number_of(of: Sequence[int]) -> int:
    """Return the number of elements of a shape."""
    return prod(of)


def count_of(number: int) -> str:
    """Return a count as text: ``1,234``, ``12.3k``, ``4.5M``."""
    for limit, unit in ((10**9, "B"), (10**6, "M"), (10**4, "k")):
        if number >= limit:
            return f"{number / (limit if unit != 'k' else 1000):.1f}{unit}"
    return f"{number:,}"


def names_of_run(first: str, last: str) -> str:
    """Return a range of names: ``blocks.0`` to ``blocks.11`` as ``blocks.0 … 11``."""
    if first == last:
        return first
    a, b = first.split("."), last.split(".")
    if len(a) == len(b):
        differ = [k for k in range(len(a)) if a[k] != b[k]]
        if len(differ) == 1:
            k = differ[0]
            return ".".join([*a[:k], f"{a[k]} … {b[k].rpartition(':')[2] if ':' in b[k] else b[k]}", *a[k + 1 :]])
    return f"{first} … {last}"
