"""Keeps the user's random state and ``.grad`` of activations unchanged while we run a part of a backward.

``torch.autograd.grad`` leaves ``.grad`` of leaves alone, but it does add to ``.grad`` of activations on which
``retain_grad`` was called, even in our calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

from . import references
from .retain_grad import RetainingActivations, activations_retaining_gradient


class RandomState:
    """The state of the random generators of the CPU and of some CUDA devices."""

    __slots__ = ("_states",)

    def __init__(self, devices: Iterable[torch.device] = ()) -> None:
        """Read the current state of the CPU's generator and those of `devices`."""
        self._states: dict[torch.device | None, torch.Tensor] = {None: torch.get_rng_state()}
        for device in devices:
            self._states[device] = torch.cuda.get_rng_state(device)

    def restore(self) -> None:
        """Set the generators to this state."""
        for device, state in self._states.items():
            torch.set_rng_state(state) if device is None else torch.cuda.set_rng_state(state, device)

    def __eq__(self, other: object) -> bool:
        """Return whether `other` is the same state."""
        return isinstance(other, RandomState) and all(torch.equal(s, other._states[d]) for d, s in self._states.items())

    __hash__ = None  # type: ignore[assignment]


#: Activations with their ``.grad``, and the random state.
Before: TypeAlias = tuple[list[tuple[torch.Tensor, torch.Tensor | None]], RandomState]


class Isolation:
    """Context in which a part of a backward runs: ``with isolation(): ...``.

    It restores the user's random state and the ``.grad`` of activations that retain it.

    :param tensors: their devices determine which random states are restored.
    :param continues_random_state: whether the blocks have a random state of their own, which continues from block to
        block; otherwise each begins with the user's.
    :param roots: the tensors that the engine starts from inside, if known: activations are searched for only if one in
        their graph retains its gradient.
    :param engine: whether the engine may run inside: only it adds to the ``.grad`` of activations, which are searched
        for once, here: Note [Activations that retain gradients].
    :ivar now: the blocks' own random state, if it continues.
    """

    def __init__(
        self,
        tensors: Iterable[torch.Tensor],
        continues_random_state: bool = False,
        engine: bool = True,
        roots: Iterable[torch.Tensor] | None = None,
    ) -> None:
        """Search for the activations to protect, and read the random state if the blocks have their own."""
        self._devices = sorted({t.device for t in tensors if t.device.type == "cuda"}, key=str)
        self._retaining_activations: Callable[[], list[torch.Tensor]]
        if roots is not None:
            self._retaining_activations = RetainingActivations(roots)
        else:
            known = [references.tensor_ref(tensor) for tensor in activations_retaining_gradient()] if engine else []
            self._retaining_activations = lambda: [tensor for ref in known if (tensor := ref()) is not None]
        self._continues_random_state = continues_random_state
        if continues_random_state:
            self.now = RandomState(self._devices)

    def read(self) -> RandomState:
        """Return the current random state; the same object as ``now`` if it has not changed."""
        found = RandomState(self._devices)
        return self.now if found == self.now else found

    def begin(self) -> Before:
        """Begin a block: set aside the user's random state and ``.grad`` of activations; return them for ``end``."""
        kept = [(tensor, tensor.grad) for tensor in self._retaining_activations()]
        theirs = RandomState(self._devices)
        for tensor, _ in kept:
            tensor.grad = None
        if self._continues_random_state:
            self.now.restore()
        return kept, theirs

    def end(self, before: Before) -> None:
        """End a block: restore the random state and ``.grad`` as ``begin`` returned them."""
        kept, theirs = before
        if self._continues_random_state:
            self.now = self.read()
        theirs.restore()
        for tensor, grad in kept:
            tensor.grad = grad

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Run the block inside with the state isolated."""
        before = self.begin()
        try:
            yield
        finally:
            self.end(before)
