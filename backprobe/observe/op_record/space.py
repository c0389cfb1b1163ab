"""Copies of tensors for comparison, up to a size limit: one safetensors file for each step.

Tensors from outside and random results have priority, since the rest can be computed from them. Other tensors may fill
half of the space.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from ...basics.files import replacing


class TensorCopies:
    """Keeps copies until the step is over. `stay`: keep them until the end, for evaluation in this process."""

    def __init__(self, most: int, stay: bool = False) -> None:
        self._most, self._used, self._rest, self._stay = most, 0, 0, stay
        #: Hash -> copy, if copies stay.
        self.all: dict[str, torch.Tensor] = {}
        self._held: dict[str, torch.Tensor] = {}
        self._known: set[str] = set()
        #: Number of tensors that did not fit, and how many of these nothing else can reconstruct.
        self.left_out = self.lost = 0

    def offer(self, name: str, values: torch.Tensor, first: bool) -> None:
        """Keep a copy of `values`, whose hash is `name`, if it fits.

        `first`: the values come from outside or are random.
        """
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

    def write(self, folder: Path | None, step: int) -> None:
        """End the step: write its tensors to `folder`.

        :raises OSError: the file cannot be written.
        """
        if self._held and folder is not None:
            with replacing(folder / f"tensors-{step:06d}.safetensors") as part:
                save_file(self._held, part)
        if self._stay:
            self.all.update(self._held)
        self._held = {}
