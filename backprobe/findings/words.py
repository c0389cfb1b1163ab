"""Small things that titles are made of."""

from __future__ import annotations

from collections.abc import Sequence


def few(names: Sequence[str], most: int = 3) -> str:
    """The first few of `names`, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def plural(many: Sequence[object], one: str, several: str) -> str:
    return one if len(many) == 1 else several


def number(value: float) -> str:
    """Three digits, as a person reads them."""
    return f"{value:.3g}"


def size(count: int) -> str:
    """Bytes as a person reads them."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 100 else f"{number(value)} {unit}"
        value /= 1024
    return f"{number(value)} GiB"
