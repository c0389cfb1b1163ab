"""Prepares the inputs of a model, and calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import torch
from torch import nn

from ...basics.errors import BackprobeError
from ...torch_internals.structure import mapped


def prepared(model: nn.Module, inputs: object, preprocess: Callable[..., object] | None) -> object:
    """Return `inputs` as tensors. The results of `preprocess` are moved to the model's device."""
    if preprocess is None:
        if isinstance(inputs, str) or (
            isinstance(inputs, (list, tuple)) and inputs and all(isinstance(i, str) for i in inputs)
        ):
            raise BackprobeError("the inputs are text: give preprocess=tokenizer, which makes tensors of it")
        return inputs
    if not callable(preprocess):
        raise BackprobeError(f"preprocess must be callable, as a tokenizer is, not {type(preprocess).__name__}")
    extra: dict[str, object] = {}
    if hasattr(preprocess, "model_input_names"):  # a tokenizer or processor of transformers
        extra["return_tensors"] = "pt"
        if isinstance(inputs, (list, tuple)) and len(inputs) > 1 and getattr(preprocess, "pad_token", None) is not None:
            extra["padding"] = True
    made = preprocess(inputs, **extra)
    if isinstance(made, Mapping) and not _takes(model, "token_type_ids"):  # some tokenizers give them to every model
        made = {key: part for key, part in made.items() if key != "token_type_ids"}
    first = next(model.parameters(), None)
    if first is None:
        return made
    return mapped(made, lambda one: one.to(first.device) if isinstance(one, torch.Tensor) else one)


def call(model: nn.Module, inputs: object) -> object:
    """Call with a tensor, a tuple of arguments, or a mapping of keyword arguments."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def _takes(model: nn.Module, keyword: str) -> bool:
    """Return whether the model's ``forward`` accepts this keyword."""
    parameters = inspect.signature(model.forward).parameters
    return keyword in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
