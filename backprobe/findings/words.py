"""Small things that titles are made of."""

from __future__ import annotations

from collections.abc import Sequence

from ..text import number, size

__all__ = ["few", "number", "plural", "size"]


def few(names: Sequence[str], most: int = 3) -> str:
    """The first few of `names`, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def plural(many: Sequence[object], one: str, several: str) -> str:
    return one if len(many) == 1 else several
