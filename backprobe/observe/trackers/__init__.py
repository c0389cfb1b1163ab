"""Trackers, one per file; files in this folder are discovered automatically (see ``Tracker`` in ``tracker.py``)."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from ..tracker import Tracker


@cache
def trackers() -> tuple[type[Tracker], ...]:
    """Return the tracker classes of all files in this folder, sorted by file name."""
    found: list[type[Tracker]] = []
    for file in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f".{file}", __name__)
        found += [
            one
            for one in vars(module).values()
            if isinstance(one, type) and issubclass(one, Tracker) and one.__module__ == module.__name__
        ]
    return tuple(found)
