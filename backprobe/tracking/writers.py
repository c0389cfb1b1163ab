"""The supported trackers and their writers."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

#: Tracker, which is also its package's name -> module in this folder and class.
WRITERS = {
    "tensorboard": ("tensorboard", "TensorBoard"),
    "wandb": ("wandb", "Wandb"),
    "mlflow": ("mlflow", "MLflow"),
    "trackio": ("trackio", "Trackio"),
}


def writer(tracker: str) -> Any:
    """Return a writer for `tracker`. Call ``begin`` first, then ``rows`` and ``alert`` as data comes, then
    ``close``.
    """
    module, name = WRITERS[tracker]
    return getattr(importlib.import_module(f".{module}", __package__), name)()


def is_installed(tracker: str) -> bool:
    """Return whether the tracker's package is installed, without importing it. A folder of that name, such as ``wandb``
    makes, does not count.
    """
    try:
        found = importlib.util.find_spec(tracker)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None
