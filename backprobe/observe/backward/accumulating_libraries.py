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

import inspect
import sys
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from ...source.frames import variables

_TRAINER, _ACCELERATOR, _STATE = "transformers.trainer", "accelerate.accelerator", "accelerate.state"
#: The variable of ``training_step`` with the number of labels in all batches of the step.
_ITEMS = "num_items_in_batch"
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
    trainer = _code_of(_TRAINER, "Trainer", "training_step")
    accelerator = _code_of(_ACCELERATOR, "Accelerator", "backward")
    found = BackwardCaller("")
    if trainer is None and accelerator is None:
        return found
    while frame is not None:
        if frame.f_code is trainer:
            return BackwardCaller("transformers", _number(variables(frame).get(_ITEMS)))
        if frame.f_code is accelerator:
            found = BackwardCaller("accelerate")
        frame = frame.f_back
    return found


def accelerate_count() -> int:
    """Return the number of batches that the script's accelerator accumulates; 1 if it has none."""
    state = getattr(sys.modules.get(_STATE), "GradientState", None)
    # All instances share one dictionary, an attribute of the class; making one would set what is not set yet.
    shared: dict[str, Any] = next((one for one in vars(state or object).values() if type(one) is dict), {})
    count = (shared.get("plugin_kwargs") or {}).get("num_steps", 1)
    return count if isinstance(count, int) else 1


def _code_of(module: str, kind: str, method: str) -> CodeType | None:
    """Return the code of a method of a class in an imported module; ``None`` if there is no such method."""
    function = getattr(getattr(sys.modules.get(module), kind, None), method, None)
    return getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None


def _number(value: object) -> float | None:
    """Return a number, or that of a tensor on the CPU."""
    if isinstance(value, torch.Tensor):
        return float(value) if value.is_cpu and value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None
