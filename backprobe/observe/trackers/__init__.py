"""Who looks for one thing: one file each. A file in here is all that it takes (see ``Tracker`` in ``events.py``)."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from ..events import Tracker


@cache
def trackers() -> tuple[type[Tracker], ...]:
    """The trackers of all files in here, by name of the file."""
    found: list[type[Tracker]] = []
    for file in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f".{file}", __name__)
        found += [
            one
            for one in vars(module).values()
            if isinstance(one, type) and issubclass(one, Tracker) and one.__module__ == module.__name__
        ]
    return tuple(found)
