"""Small things that titles are made of."""

from __future__ import annotations

from collections.abc import Sequence

from ..text import few, number, size

__all__ = ["few", "number", "plural", "size"]


def plural(many: Sequence[object], one: str, several: str) -> str:
    return one if len(many) == 1 else several
