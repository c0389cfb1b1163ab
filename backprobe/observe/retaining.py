"""Activations on which ``retain_grad`` was called (N20). Torch has no list of them, so we look through what the garbage
collector knows: a tensor that has no Python object has nobody who could read its ``.grad``."""

from __future__ import annotations

import contextlib
import gc
from itertools import compress

import torch


def retaining() -> list[torch.Tensor]:
    """Activations that keep their gradient."""
    kinds: list[type] = [torch.Tensor]
    for kind in kinds:  # grows as we go
        kinds.extend(kind.__subclasses__())
    wanted = set(kinds) - {torch.nn.Parameter}
    objects = gc.get_objects()
    found = []
    for tensor in compress(objects, map(wanted.__contains__, map(type, objects))):
        with contextlib.suppress(RuntimeError):  # a wrapper of a transform that is over
            if tensor.retains_grad and not tensor.is_leaf:
                found.append(tensor)
    return found
