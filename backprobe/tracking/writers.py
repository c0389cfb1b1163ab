"""Which trackers there are, and what writes to each."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

#: Tracker, which is its package's name too -> module in this folder and class.
WRITERS = {
    "tensorboard": ("tensorboard", "TensorBoard"),
    "wandb": ("wandb", "Wandb"),
    "mlflow": ("mlflow", "MLflow"),
    "trackio": ("trackio", "Trackio"),
}


def writer(tracker: str) -> Any:
    """What writes to `tracker`, not begun: ``begin``, then ``rows`` and ``alert`` as they come, then ``close``."""
    module, name = WRITERS[tracker]
    return getattr(importlib.import_module(f".{module}", __package__), name)()


def is_installed(tracker: str) -> bool:
    """Whether its package is there; it is not imported. A folder of that name, such as ``wandb`` makes, is none."""
    try:
        found = importlib.util.find_spec(tracker)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None
