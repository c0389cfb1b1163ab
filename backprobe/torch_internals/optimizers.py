"""The parameters that an optimizer holds, its state, and the code of torch that updates parameters."""

from __future__ import annotations

import os
from types import CodeType
from typing import TYPE_CHECKING

import torch
from torch.amp import grad_scaler

if TYPE_CHECKING:
    from torch.optim import Optimizer

_FOLDER = os.path.join(os.path.dirname(torch.optim.__file__ or ""), "")
_SCALER_FILE: str | None = grad_scaler.__file__


def is_code_of_updates(code: CodeType) -> bool:
    """Return whether `code` is that of torch's optimizers, schedulers or gradient scalers."""
    return code.co_filename.startswith(_FOLDER) or code.co_filename == _SCALER_FILE


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return all parameters of the groups of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def ids_held_by(*optimizers: Optimizer) -> set[int]:
    """Return the ids of the parameters that optimizers hold."""
    return {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}


def with_other_state(optimizer: Optimizer) -> tuple[list[torch.Tensor], bool]:
    """Return the parameters of `optimizer` whose state has another shape than they, and whether that is the shape of
    another of its parameters for each.
    """
    held = parameters_of(optimizer) if hasattr(optimizer, "param_groups") else []
    shapes, found, of_others = {p.shape for p in held}, [], True
    for p in held:
        state = optimizer.state.get(p)
        tensors = [one for one in state.values() if isinstance(one, torch.Tensor)] if isinstance(state, dict) else []
        of_state = {one.shape for one in tensors if one.dim()}
        if len(of_state) == 1 and p.shape not in of_state:  # a state with tensors of several shapes factorises
            found.append(p)
            of_others = of_others and of_state <= shapes
    return found, of_others
