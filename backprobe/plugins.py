"""Loads plugins of other packages from entry points. A plugin that fails is skipped and reported; it breaks no run."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from .records import Unseen

#: Errors of a plugin that are caught: all except those that end the script on purpose, such as Ctrl-C.
CONTAINED = (Exception, SystemExit)


@cache
def load(group: str) -> tuple[tuple[tuple[str, Any], ...], tuple[Unseen, ...]]:
    """Return the objects that the entry points of `group` name, by name, and those that could not be loaded."""
    loaded: list[tuple[str, Any]] = []
    failed: list[Unseen] = []
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        try:
            loaded.append((point.name, point.load()))
        except CONTAINED as error:
            failed.append(failure(point.name, group, error))
    return tuple(loaded), tuple(failed)


def failure(name: str, group: str, error: BaseException) -> Unseen:
    """Return the record of a plugin that failed, which tells the reader that it was left out."""
    text = " ".join(str(error).split())[:300]
    return Unseen(f"plugin {name}", 1, f"a plugin of {group} failed, and was left out: {type(error).__name__}: {text}")
