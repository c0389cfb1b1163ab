"""Options of a capture, and the treatment of each captured tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...basics.errors import BackprobeError


@dataclass(frozen=True)
class Treatment:
    """The steps that reduce a value or its gradient before it is stored: slice, reduce, cast, move."""

    detach: bool = False
    device: torch.device | str | int | None = None
    dtype: torch.dtype | None = None
    index: Any = None
    reduce: Callable[[torch.Tensor], Any] | None = None

    def __call__(self, tensor: Any) -> Any:
        """Return the tensor to store. A slice is copied, because a view would keep the whole tensor in memory."""
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
    #: Whether the gradients of later backward calls are stored too.
    grads: bool = True
    #: Whether the inputs of modules are stored too.
    inputs: bool = False
    #: Source lines whose results are stored: none, all (True), or these.
    lines: bool | tuple[str, ...] = False
    #: A file or folder that values go to instead of memory.
    to: Path | None = None
