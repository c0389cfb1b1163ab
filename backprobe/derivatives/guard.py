"""Nothing of the user's changes while we differentiate: ``.grad`` of kept activations, random state, modes.

``torch.autograd.grad`` leaves ``.grad`` of leaves alone, but it does add to ``.grad`` of an activation on which
``retain_grad`` was called, whoever asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch

from ..torchside import modes
from ..torchside.retain_grad import Retaining


class Guard:
    """``with guard():`` differentiate inside: outside of inference mode, unseen by torch function modes, and without a
    trace left on the user's side. Passes start from `roots`; `tensors` say which devices' random state is kept. See
    Note [Activations that retain gradients]."""

    def __init__(self, roots: Iterable[torch.Tensor], tensors: Iterable[torch.Tensor]) -> None:
        self._devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
        self._retaining = Retaining(roots)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        kept = [(tensor, tensor.grad) for tensor in self._retaining()]
        state = torch.get_rng_state()
        states = [(device, torch.cuda.get_rng_state(device)) for device in self._devices]
        for tensor, _ in kept:
            tensor.grad = None
        try:
            with torch.inference_mode(False), modes.unseen():
                yield
        finally:
            for tensor, grad in kept:
                tensor.grad = grad
            torch.set_rng_state(state)
            for device, one in states:
                torch.cuda.set_rng_state(one, device)
