"""Observes a ``GradScaler`` from outside: the factor of a loss, and the end of an iteration."""

from __future__ import annotations

import weakref
from types import FrameType

import torch

from . import code_objects
from .references import tensor_ref
from .saved_by_nodes import saved_tensors

#: The function that ``GradScaler.update`` calls once per iteration, even if no optimizer stepped; its first argument is
#: the scale.
UPDATE_SCALE = getattr(torch, "_amp_update_scale_", None)

#: The code of the methods of a scaler that call the step of an optimizer.
STEPS_OPTIMIZER = frozenset(filter(None, (code_objects.SCALER_STEP, code_objects.SCALER_MAY_STEP)))


#: Frames above an optimizer's step that are searched for its scaler.
MAX_FRAMES = 12


def scaler_frame(frame: FrameType | None) -> FrameType | None:
    """Return the frame of a scaler's method that calls the step of an optimizer, which runs in `frame` or above it."""
    for _ in range(MAX_FRAMES):
        if frame is None or frame.f_code in STEPS_OPTIMIZER:
            return frame
        frame = frame.f_back
    return None


def is_unscaled(scaler: torch.amp.GradScaler, optimizer: int) -> bool | None:
    """Return whether `scaler` has divided its factor out of the gradients of an optimizer, given by id, in this step.

    ``None``: it is off, or not known.
    """
    if not scaler.is_enabled():
        return None
    states = getattr(scaler, "_per_optimizer_states", None)
    if not isinstance(states, dict):
        return None
    state = states.get(optimizer)
    stage = state.get("stage") if state is not None else None
    return stage is not None and getattr(stage, "name", "") != "READY"


class Scales:
    """The scale tensors of all scalers seen so far."""

    def __init__(self) -> None:
        """Begin without scales."""
        self._known: list[weakref.ref[torch.amp.GradScaler]] = []

    def updated(self, scale: torch.Tensor) -> None:
        """Remember the `scale` that a scaler is about to update."""
        if not any(ref() is scale for ref in self._known):
            self._known = [ref for ref in self._known if ref() is not None] + [tensor_ref(scale)]

    @property
    def current(self) -> torch.Tensor | None:
        """Return the scale of the scaler that updated last, on its device."""
        return next((scale for ref in reversed(self._known) if (scale := ref()) is not None), None)

    def is_scale(self, factor: torch.Tensor) -> bool:
        """Return whether `factor` shares the memory of a known scale."""
        return any(one is not None and one.data_ptr() == factor.data_ptr() for one in (ref() for ref in self._known))


def factor_of(root: torch.Tensor) -> torch.Tensor | None:
    """Return the real scalar tensor that `root` was last multiplied by, as a scaler does.

    Call it before the backward.
    """
    node = getattr(root, "grad_fn", None)
    if node is None or node.name() != "MulBackward0" or root.numel() != 1:
        return None
    saved = dict(saved_tensors(node))
    for name in ("other", "self"):
        factor = saved.get(name)
        if factor is None or factor.numel() != 1 or factor.is_complex():
            continue
        if not factor.requires_grad and type(factor) is torch.Tensor:
            return factor
    return None


def has_step_pre_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether functions of the script run before each step of `optimizer`; they may divide its gradients."""
    return bool(optimizer._optimizer_step_pre_hooks)
