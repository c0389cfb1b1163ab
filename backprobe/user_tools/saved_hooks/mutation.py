"""A layer that makes in-place writes to saved tensors harmless: values are cloned before they are overwritten.

``torch.autograd.graph.allow_mutation_on_saved_tensors`` does the same by the address of the tensor that is written. A
write through a view that begins elsewhere (``b[1:].mul_(2)``) has another address: it makes no clone, and the gradient
is wrong without an error. This layer goes by the storage instead, and the clone belongs to the saved tensor: the
backward may run outside the block.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...torch_internals import modes, storage_ids
from .cells import Held, Kept, Version, plain
from .layers import Layer


class Guarded(Kept):
    """A tensor that stays where it is until its memory is written."""

    __slots__ = ("cloned", "version")
    safe = True

    def __init__(self, tensor: torch.Tensor, note: object) -> None:
        """Keep `tensor`, and note its version.
        :param note: an object that is to live as long.
        """
        super().__init__(tensor, note)
        self.version = Version(tensor)
        self.cloned = False

    def get(self) -> torch.Tensor:
        """Return the tensor; raise torch's error if it was written outside the block."""
        if not self.cloned:
            self.version.check(self)  # written outside the block
        return self.tensor

    def move(self, copy: torch.UntypedStorage) -> None:
        """Use the storage `copy` from now on: the original is about to be written."""
        was = self.tensor
        made = torch.empty(0, dtype=was.dtype, device=was.device)
        made.set_(copy, was.storage_offset(), was.size(), was.stride())  # type: ignore[call-overload]
        self.tensor = made.conj() if was.is_conj() else made
        self.cloned, self.note = True, None


class _Writes(TorchDispatchMode):
    """Notifies the layer of each storage that an op is about to write."""

    def __init__(self, layer: AllowMutation) -> None:
        """Take the layer to notify."""
        super().__init__()
        self._layer = layer

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        """Notify the layer of the storages that the op writes, run it, and return its result."""
        kwargs = kwargs or {}
        written = _written(func, args, kwargs) if func._schema.is_mutable else []
        if self._layer.guarded:
            for tensor in written:
                self._layer.about_to_write(tensor)
        if not _leaves_counting(func) or modes.dispatch_modes():  # same result below a user's mode
            return func(*args, **kwargs)
        before = [(tensor, tensor._version) for tensor in written if not tensor.is_inference()]
        made = func(*args, **kwargs)
        torch.autograd.graph.increment_version([tensor for tensor, version in before if tensor._version == version])
        return made


def _written(func: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> list[torch.Tensor]:
    """Return the tensors that an op with these arguments writes to, by its schema."""
    found: list[torch.Tensor] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            values = value if isinstance(value, (list, tuple)) else (value,)
            found += [one for one in values if isinstance(one, torch.Tensor)]
    return found


def _leaves_counting(func: Any) -> bool:
    """Return whether an op leaves the counting of versions to the ops that its kernel calls, as ``_foreach_add_`` does.

    Below a dispatch mode these do not count: views of a written tensor would keep nodes that plain torch makes anew.
    """
    return bool(func._schema.is_mutable and func._schema.name.startswith("aten::_foreach_"))


class AllowMutation(Layer):
    """The layer of ``offload.allow_mutation``."""

    lenient = True

    def __init__(self) -> None:
        """Begin without guarded tensors."""
        super().__init__()
        self._lock = threading.Lock()
        #: Key of the storage -> saved tensors that still use it.
        self.guarded: dict[int, weakref.WeakSet[Guarded]] = {}
        self._mode: _Writes | None = None
        self._prune = 10_000
        self.clones = 0

    def start(self) -> None:
        """Activate the mode that sees writes."""
        self._mode = _Writes(self)
        self._mode.__enter__()

    def stop(self) -> None:
        """Deactivate the mode, and forget the guarded tensors."""
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)
        self.guarded.clear()

    def takes(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor can be cloned by its storage; parameters and buffers are taken too."""
        return plain(tensor)

    def place(self, tensor: torch.Tensor) -> Held:
        """Keep a tensor where it is, guarded against writes."""
        held = self.hand_on(tensor)
        if type(held) is not Kept:  # a layer around this one has moved it, so it cannot be written
            return held
        guarded = Guarded(tensor, held.note)
        key = storage_ids.storage_key(tensor.untyped_storage())
        with self._lock:
            if len(self.guarded) > self._prune:
                self.guarded = {k: s for k, s in self.guarded.items() if len(s)}
                self._prune = max(10_000, 2 * len(self.guarded))
            self.guarded.setdefault(key, weakref.WeakSet()).add(guarded)
        return guarded

    def about_to_write(self, tensor: torch.Tensor) -> None:
        """Clone the memory of `tensor` for the saved tensors that use it, before it is written."""
        if not plain(tensor):
            return
        storage = tensor.untyped_storage()
        with self._lock:
            found = [g for g in self.guarded.pop(storage_ids.storage_key(storage), ()) if not g.cloned]
        # A version that has changed: code that this mode does not see wrote the tensor. That stays an error.
        found = [g for g in found if g.version.token._version == g.version.saved]
        if not found:
            return
        copy = storage.clone()
        self.clones += 1
        self.bytes += storage.nbytes()
        self.held += storage.nbytes()
        with modes.disable_function_modes(), torch.no_grad():
            for guarded in found:
                guarded.move(copy)
