"""Tells from source text whether a line divides by the number of accumulated batches."""

from __future__ import annotations

import re
from collections.abc import Set

#: A divisor that counts accumulated batches by its name.
_COUNT = re.compile(r"accum|(^|[^a-z])acc([^a-z]|$)|grad_acc|micro", re.IGNORECASE)
#: The divisors on a line of source.
_DIVISOR = re.compile(r"/=?\s*([\w.]+)|(?:div_?|divide_?|true_divide_?)\(\s*([\w.]+)")


def divisors_in(text: str) -> list[str]:
    """Return what a line of source divides by: names, attributes and numbers."""
    return ["".join(groups) for groups in _DIVISOR.findall(text)]


def is_count_of_batches(divisor: str, names: Set[str] = frozenset()) -> bool:
    """Return whether a divisor is the number of accumulated batches by its name.

    :param names: names that the script gives to a library as this number.
    """
    return bool(_COUNT.search(divisor)) or divisor.rpartition(".")[2] in names
