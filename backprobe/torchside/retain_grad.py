"""Activations on which ``retain_grad`` was called.

Note [Activations that retain gradients]: Torch has no list of them, so we look through what the garbage collector
    knows: a tensor that has no Python object has nobody who could read its ``.grad``.
"""

from __future__ import annotations

import contextlib

import torch

from . import references


def retaining() -> list[torch.Tensor]:
    """Activations that keep their gradient."""
    found = []
    for tensor in references.tensors_alive():
        with contextlib.suppress(RuntimeError):  # a wrapper of a transform that is over
            if not tensor.is_leaf and tensor.retains_grad:
                found.append(tensor)
    return found
