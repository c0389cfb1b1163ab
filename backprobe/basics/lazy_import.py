"""Imports the parts that need torch on first use, and reports which name the installed torch lacks."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from .errors import BackprobeError

PACKAGE = __name__.partition(".")[0]


def load(name: str) -> ModuleType:
    """Import the module `name` of backprobe, as in ``engine.replay``.

    :raises BackprobeError: this torch lacks a name that the module needs.
    """
    try:
        return importlib.import_module(f"{PACKAGE}.{name}")
    except (AttributeError, ImportError) as error:
        torch, what = sys.modules.get("torch"), str(error).partition(" (/")[0]
        if torch is None or "torch" not in what:
            raise
        raise BackprobeError(
            f"backprobe cannot watch torch {torch.__version__}: {what}. Use another torch or a newer backprobe; "
            "'backprobe doctor' tells what else is missing"
        ) from error
