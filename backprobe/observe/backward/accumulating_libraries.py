"""Finds out which training library makes a backward call, and how many batches it accumulates.

Note [Libraries that accumulate]:

- ``Trainer.training_step`` of transformers divides the loss by that number, or it does not: if the model's forward
  takes ``**kwargs`` and the batches have labels, or if a ``compute_loss_func`` is given, the Trainer expects that the
  loss was divided by ``num_items_in_batch``, the number of labels in all batches of the step. It passes this number to
  ``compute_loss`` and to the model. Nothing checks that they use it.
- ``Accelerator.backward`` divides by the ``gradient_accumulation_steps`` that the accelerator was given. A call of
  ``loss.backward()`` goes around it.

``tests/test_accumulating_libraries.py`` checks this with the installed versions.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import NamedTuple

import torch

from ...source.frames import variables

_TRAINER, _ACCELERATOR, _STATE = "transformers.trainer", "accelerate.accelerator", "accelerate.state"
#: Arguments that give a library the number of accumulated batches.
COUNT_KEYWORDS = frozenset(("gradient_accumulation_steps", "accumulate_grad_batches"))


class BackwardCaller(NamedTuple):
    """The library whose code makes a backward call.

    :ivar library: ``transformers``, ``accelerate``, or empty for another caller.
    :ivar items: the number of labels by which the Trainer expects the loss to be divided; ``None`` if there is none, or
        if reading it would wait for an accelerator.
    """

    library: str
    items: float | None = None


def backward_caller(frame: FrameType | None) -> BackwardCaller:
    """Return which library makes a backward call that `frame` makes: the outermost of those that are known."""
    trainer, accelerator = _file_of(_TRAINER), _file_of(_ACCELERATOR)
    found = BackwardCaller("")
    if not (trainer or accelerator):
        return found
    while frame is not None:
        code = frame.f_code
        if code.co_name == "training_step" and code.co_filename == trainer:
            return BackwardCaller("transformers", _number(variables(frame).get("num_items_in_batch")))
        if code.co_name == "backward" and code.co_filename == accelerator:
            found = BackwardCaller("accelerate")
        frame = frame.f_back
    return found


def accelerate_count() -> int:
    """Return the number of batches that the script's accelerator accumulates; 1 if it has none."""
    state = getattr(sys.modules.get(_STATE), "GradientState", None)
    shared = getattr(state, "_shared_state", None) or {}
    count = (shared.get("plugin_kwargs") or {}).get("num_steps", 1)
    return count if isinstance(count, int) else 1


def _file_of(module: str) -> str:
    """Return the file of an imported module; empty if it is not imported."""
    return getattr(sys.modules.get(module), "__file__", None) or ""


def _number(value: object) -> float | None:
    """Return a number, or that of a tensor on the CPU."""
    if isinstance(value, torch.Tensor):
        return float(value) if value.is_cpu and value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None
