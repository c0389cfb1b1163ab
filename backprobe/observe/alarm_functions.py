"""The user's function for alarms, given by name. No torch."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from ..basics.errors import BackprobeError
from ..records import Finding


def function_named(text: str) -> Callable[[Finding], object]:
    """Return a function that calls ``MODULE:FUNCTION``.

    The module is imported at the first call only: its side effects, such as drawing random numbers, do not happen in a
    run without alarms.

    :raises BackprobeError: the top-level package does not exist, as far as can be told without importing it.
    """
    name = text.partition(":")[0]
    top = name.partition(".")[0]
    if top != "__main__" and top not in sys.modules and importlib.util.find_spec(top) is None:
        raise BackprobeError(f"--on-alarm {text}: no module named {top!r}")
    return by_name(text)


def by_name(text: str) -> Callable[[Finding], object]:
    """Return a function that imports and calls ``MODULE:FUNCTION``. The call raises if there is no such function."""
    name, _, function = text.partition(":")

    def call(finding: Finding) -> object:
        """Import the function and call it with the finding."""
        module: Any = importlib.import_module(name)
        for part in function.split("."):
            module = getattr(module, part)
        return module(finding)

    return call
