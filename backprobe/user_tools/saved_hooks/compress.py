"""The layer that stores saved tensors in a smaller form."""

from __future__ import annotations

from typing import Any

import torch

from ...basics.errors import BackprobeError
from .cells import Held
from .codec import Cast, lossless, narrowed, restore
from .copies import CopyingLayer


class Compressed(CopyingLayer):
    """The layer of ``offload.compressed``."""

    words = "compressed (their size as they were)"

    def __init__(self, dtype: torch.dtype | None, level: int, **kwargs: Any) -> None:
        """Take the options of ``offload.compressed``; see ``Layer`` for the others.
        :raises BackprobeError: `dtype` is no floating-point type, or `level` is out of range.
        """
        super().__init__(**kwargs)
        if dtype is not None and not dtype.is_floating_point:
            raise BackprobeError(f"dtype is {dtype}; saved values are kept in a floating-point type, such as bfloat16")
        if not 0 <= level <= 9:
            raise BackprobeError(f"level is {level}; it is 0 (no zlib) to 9")
        self._dtype, self._level = dtype, level

    def store(self, flat: torch.Tensor) -> Held | None:
        """Return a smaller form of a flat tensor; ``None`` if there is none."""
        if self._dtype is not None:
            made = narrowed(flat, self._dtype)
            if made is not None:
                return Cast(self._part(made[0]), flat.dtype, made[1])
        small = lossless(flat, self._level)
        if small is None:
            return None
        form, parts = small
        return restore(form, [self._part(part) for part in parts], flat)

    def _part(self, part: torch.Tensor) -> Held:
        """Pass a part of the smaller form to the layers around this one, and count its bytes."""
        self.held += part.numel() * part.element_size()
        held = self.hand_on(part)
        return held
