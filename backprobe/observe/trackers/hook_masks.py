"""Finds the mask by which a gradient's hook multiplies.

Note [Masks of hooks]: rows whose gradient is zero anyway are frozen, too, if a hook multiplies the gradient by a mask
that is zero there. A tensor is that mask if the line of the hook that multiplies names it, if it has the shape of the
parameter after broadcasting, and if each product was observed: the gradient after the hook is the one before it, times
the mask.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import FunctionType, MethodType

import torch

from ...source.definitions import zeroes
from ...torch_internals import private

#: Maximum number of elements of a mask after broadcasting.
MAX_MASKED_ELEMENTS = 1 << 24


def mask_of(hook: object, shape: torch.Size) -> torch.Tensor | None:
    """Return the only mask that a hook may multiply a gradient of this shape by, expanded to the shape.

    :returns: ``None`` if there is none, or several; or if it is zero nowhere, or everywhere.
    """
    line = zeroes(hook)
    words = set(re.findall(r"\w+", line.text)) if line is not None else set()
    found = {id(mask): mask for name, mask in _tensors_of(hook) if name in words and _fits(mask, shape)}
    if len(found) != 1:
        return None
    mask = next(iter(found.values())).detach()
    zero = mask == 0
    return mask.expand(shape) if bool(zero.any()) and not bool(zero.all()) else None


def _tensors_of(hook: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a hook may read: variables around it, defaults, and attributes of its object."""
    function = hook.__func__ if isinstance(hook, MethodType) else hook
    if not isinstance(function, FunctionType):
        return
    known = inspect.getclosurevars(function)
    defaults = {one.name: one.default for one in inspect.signature(function).parameters.values()}
    attributes = getattr(getattr(hook, "__self__", None), "__dict__", {})
    for values in (known.globals, known.nonlocals, defaults, attributes):
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                yield name, value


def _fits(mask: torch.Tensor, shape: torch.Size) -> bool:
    """Return whether a tensor can be read on the CPU, has no graph, and broadcasts to `shape`."""
    if mask.requires_grad or not mask.is_cpu or not private.is_readable(mask) or shape.numel() > MAX_MASKED_ELEMENTS:
        return False
    try:
        return bool(mask.dim()) and torch.broadcast_shapes(mask.shape, shape) == shape
    except RuntimeError:
        return False
