"""What is done with each tensor as it comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import BackprobeError


@dataclass(frozen=True)
class Treatment:
    """How values are kept, and their gradients in the same way: sliced, then reduced, then cast, then moved."""

    detach: bool = False
    device: Any = None
    dtype: torch.dtype | None = None
    index: Any = None
    reduce: Callable[[Any], Any] | None = None

    def __call__(self, tensor: Any) -> Any:
        """The tensor to keep. A slice is copied: a view of it would keep the whole tensor in memory."""
        if self.index is not None:
            tensor = tensor[self.index].clone()
        if self.reduce is not None:
            tensor = self.reduce(tensor)
            if isinstance(tensor, (bool, int, float, complex)):
                tensor = torch.tensor(tensor)
            if not isinstance(tensor, torch.Tensor):
                raise BackprobeError(
                    f"reduce={getattr(self.reduce, '__name__', self.reduce)} gave {type(tensor).__name__}: "
                    "it must give a tensor or a number"
                )
        if self.dtype is not None and (tensor.is_floating_point() or tensor.is_complex()):
            tensor = tensor.to(self.dtype)
        if self.device is not None:
            tensor = tensor.to(self.device)
        return tensor


@dataclass(frozen=True)
class Options:
    """The options of a capture."""

    keep: Treatment = Treatment()
    #: Whether gradients are kept when a backward comes by.
    grads: bool = True
    #: Whether what modules are called with is kept too.
    inputs: bool = False
    #: Lines whose tensors are kept: none, all (True), or these.
    lines: bool | tuple[str, ...] = False
    #: A file or folder that values go to instead of memory.
    to: Path | None = None
