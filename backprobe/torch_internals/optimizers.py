"""The parameters that an optimizer holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.optim import Optimizer


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return all parameters of the groups of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def ids_held_by(*optimizers: Optimizer) -> set[int]:
    """Return the ids of the parameters that optimizers hold."""
    return {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
