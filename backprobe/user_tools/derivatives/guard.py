"""Nothing of the user's changes while we differentiate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch

from ...torch_internals import modes
from ...torch_internals.isolation import Isolation


class Guard:
    """``with guard():`` differentiate inside: outside of inference mode, unseen by torch function modes, and without a
    trace left on the user's side. Passes start from `roots`; `tensors` say which devices' random state is kept."""

    def __init__(self, roots: Iterable[torch.Tensor], tensors: Iterable[torch.Tensor]) -> None:
        """Search the graph of `roots` for activations to protect, and note the devices of `tensors`."""
        self._aside = Isolation(tensors, roots=roots)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Run the block inside with the user's state isolated."""
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False), self():
                yield
            return
        before = self._aside.begin()
        try:
            with modes.disable_function_modes():
                yield
        finally:
            self._aside.end(before)
