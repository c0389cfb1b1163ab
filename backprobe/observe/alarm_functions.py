"""The function that is told of alarms, by its name. No torch."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from ..errors import BackprobeError
from ..records import Finding


def named(text: str) -> Callable[[Finding], object]:
    """The function that ``MODULE:FUNCTION`` names. Its module is imported when it is called for the first time: what
    that does, such as drawing random numbers, is no part of a run without alarms.

    :raises BackprobeError: there is no such module, as far as can be told without importing it.
    """
    name = text.partition(":")[0]
    top = name.partition(".")[0]
    if top != "__main__" and top not in sys.modules and importlib.util.find_spec(top) is None:
        raise BackprobeError(f"--on-alarm {text}: no module named {top!r}")
    return by_name(text)


def by_name(text: str) -> Callable[[Finding], object]:
    """That function. Calling it raises where there is none."""
    name, _, function = text.partition(":")

    def call(finding: Finding) -> object:
        module: Any = importlib.import_module(name)
        for part in function.split("."):
            module = getattr(module, part)
        return module(finding)

    return call
