"""Tensors that two runs have kept, by the hash of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from ..basics.errors import BackprobeError
from ..basics.files import inside
from ..basics.untrusted import is_regular


class Tensors(Protocol):
    """A lookup of tensors by the hash of their values."""

    def get(self, name: str, /) -> torch.Tensor | None: ...


class Kept:
    """Reads stored tensors one at a time: a run may have kept more than there is memory for."""

    def __init__(self, folders: list[Path]) -> None:
        """Open the tensor files of `folders`.

        :raises BackprobeError: a file is damaged.
        """
        self._files: dict[str, Any] = {}
        for folder in folders:
            for path in sorted(folder.glob("tensors-*.safetensors")):
                try:
                    if not is_regular(path):
                        raise OSError("it is not a regular file")
                    opened = safe_open(str(inside(folder, path.name)), "pt")
                except (OSError, SafetensorError) as error:
                    raise BackprobeError(f"{path} is damaged: {error}") from None
                for name in opened.keys():  # noqa: SIM118 (not a dict)
                    self._files[name] = opened

    def get(self, name: str) -> torch.Tensor | None:
        """Return the tensor with this hash; ``None`` if no run kept it."""
        file = self._files.get(name)
        return None if file is None else file.get_tensor(name)

    def __contains__(self, name: str) -> bool:
        """Return whether a run has kept the tensor with this hash."""
        return name in self._files
