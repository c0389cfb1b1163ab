"""Tensors that are kept to be compared, within a stated space: one safetensors file for each step.

What comes from outside and what is random comes first: the rest can be computed from it. Of the rest as much is kept as
half of the space holds.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file


class Space:
    """Holds copies until the step is over."""

    def __init__(self, most: int) -> None:
        self._most, self._used, self._rest = most, 0, 0
        self._held: dict[str, torch.Tensor] = {}
        self._known: set[str] = set()
        #: Tensors that there was no room for, and those of them that nothing else tells of.
        self.left_out = self.lost = 0

    def offer(self, name: str, values: torch.Tensor, first: bool) -> None:
        """`values` has these bytes (their hash is `name`). `first`: it comes from outside."""
        if name in self._known:
            return
        size = values.numel() * values.element_size()
        if self._used + size > self._most or (not first and self._rest + size > self._most // 2):
            self.left_out += 1
            self.lost += first
            return
        self._known.add(name)
        self._used += size
        if not first:
            self._rest += size
        self._held[name] = values.clone()

    def write(self, folder: Path, step: int) -> None:
        """:raises OSError: it cannot be written."""
        if self._held:
            path = folder / f"tensors-{step:06d}.safetensors"
            save_file(self._held, path)
        self._held = {}
