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
    """Copies of the tensors of a step, which are written to a file when the step has ended.

    :param max_bytes: limit for the copies of the whole run.
    :param keep_until_end: keep the copies in memory too, for the comparison at the end of the script.
    """

    def __init__(self, max_bytes: int, keep_until_end: bool = False) -> None:
        """Start without copies."""
        self._max_bytes, self._used_bytes, self._recomputable_bytes, self._keep_until_end = (
            max_bytes,
            0,
            0,
            keep_until_end,
        )
        #: Hash -> copy, if copies are kept until the end.
        self.by_hash: dict[str, torch.Tensor] = {}
        self._pending: dict[str, torch.Tensor] = {}
        self._seen_hashes: set[str] = set()
        #: Number of tensors that did not fit, and how many of these nothing else can reconstruct.
        self.left_out = self.not_recomputable = 0

    def add_if_fits(self, hashed: str, values: torch.Tensor, has_priority: bool) -> None:
        """Keep a copy of `values`, whose hash is `hashed`, if it fits.

        :param has_priority: the values come from outside or are random, so they cannot be computed again.
        """
        if hashed in self._seen_hashes:
            return
        size = values.numel() * values.element_size()
        if self._used_bytes + size > self._max_bytes or (
            not has_priority and self._recomputable_bytes + size > self._max_bytes // 2
        ):
            self.left_out += 1
            self.not_recomputable += has_priority
            return
        self._seen_hashes.add(hashed)
        self._used_bytes += size
        if not has_priority:
            self._recomputable_bytes += size
        self._pending[hashed] = values.clone()

    def write(self, folder: Path | None, step: int) -> None:
        """End the step: write its tensors to `folder`, if there is one, and forget them unless they are kept.

        :raises OSError: the file cannot be written.
        """
        if self._pending and folder is not None:
            with replacing(folder / f"tensors-{step:06d}.safetensors") as part:
                save_file(self._pending, part)
        if self._keep_until_end:
            self.by_hash.update(self._pending)
        self._pending = {}
