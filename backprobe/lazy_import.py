"""Imports the parts that need torch on first use, and reports which name the installed torch lacks."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from .errors import BackprobeError


def load(name: str) -> ModuleType:
    """Import a module of this package.

    :raises BackprobeError: this torch lacks a name that the module needs.
    """
    try:
        return importlib.import_module(f".{name}", __package__)
    except (AttributeError, ImportError) as error:
        torch, what = sys.modules.get("torch"), str(error).partition(" (/")[0]
        if torch is None or "torch" not in what:
            raise
        raise BackprobeError(
            f"backprobe cannot watch torch {torch.__version__}: {what}. Use another torch or a newer backprobe; "
            "'backprobe doctor' tells what else is missing"
        ) from error
