"""What a replay must not change on the user's side: random state, and ``.grad`` of activations that keep theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..torchside import private
from ..torchside.retain_grad import retaining


class RandomState:
    """The state of the random generators of the CPU and of some CUDA devices."""

    __slots__ = ("_states",)

    def __init__(self, devices: Iterable[torch.device] = ()) -> None:
        self._states: dict[Any, torch.Tensor] = {None: torch.get_rng_state()}
        for device in devices:
            self._states[device] = torch.cuda.get_rng_state(device)

    def put(self) -> None:
        for device, state in self._states.items():
            torch.set_rng_state(state) if device is None else torch.cuda.set_rng_state(state, device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RandomState) and all(torch.equal(s, other._states[d]) for d, s in self._states.items())

    __hash__ = None  # type: ignore[assignment]


class Isolation:
    """``with aside:`` run a part of a backward with a random state of its own, which goes on from block to block; the
    user's is put back after each, and so is ``.grad`` of activations (``retain_grad``).

    :ivar now: the own random state.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        devices = {t.device for t in tensors}
        self._devices = sorted((d for d in devices if d.type == "cuda"), key=str)
        self._retaining = [private.tensor_ref(tensor) for tensor in retaining()]
        self.now = self.read()

    def read(self) -> RandomState:
        """The random state of this moment; the object that is known already where it has not changed."""
        found = RandomState(self._devices)
        return self.now if hasattr(self, "now") and found == self.now else found

    @contextmanager
    def __call__(self) -> Iterator[None]:
        kept = [(tensor, tensor.grad) for ref in self._retaining if (tensor := ref()) is not None]
        theirs = RandomState(self._devices)
        for tensor, _ in kept:
            tensor.grad = None
        self.now.put()
        try:
            yield
        finally:
            self.now = self.read()
            theirs.put()
            for tensor, grad in kept:
                tensor.grad = grad
