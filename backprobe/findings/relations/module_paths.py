"""The module that several parameters or nodes have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def common_module(paths: Sequence[str], share: float = 1.0) -> str:
    """Return the deepest module that contains at least `share` of `paths`; empty if there is none."""
    count: Counter[str] = Counter()
    for path in paths:
        parts = path.split(".")
        count.update(".".join(parts[: n + 1]) for n in range(len(parts)))
    common = [path for path, times in count.items() if path and times >= share * len(paths)]
    return max(common, key=lambda path: path.count("."), default="")
