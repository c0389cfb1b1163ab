"""Tensors that are kept to be compared, within a stated space: one safetensors file for each step.

What comes from outside and what is random comes first: the rest can be computed from it. Of the rest as much is kept as
half of the space holds.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from ...files import replacing


class Space:
    """Holds copies until the step is over. `stay`: until all is, where they are looked at in this process."""

    def __init__(self, most: int, stay: bool = False) -> None:
        self._most, self._used, self._rest, self._stay = most, 0, 0, stay
        #: By hash, where copies stay.
        self.all: dict[str, torch.Tensor] = {}
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

    def write(self, folder: Path | None, step: int) -> None:
        """The step is over. `folder`: where its tensors go to.

        :raises OSError: it cannot be written.
        """
        if self._held and folder is not None:
            with replacing(folder / f"tensors-{step:06d}.safetensors") as part:
                save_file(self._held, part)
        if self._stay:
            self.all.update(self._held)
        self._held = {}
