"""Layers that copy memory elsewhere, once for all tensors that share it.

Note [Shared copies]: Two saved tensors on the same memory share one copy if neither the version nor, on the CPU, the
content has changed in between: a write through ``.data`` or from NumPy does not change the version. On other devices
the version alone decides, because reading a checksum there would make the program wait.

Note [Copies of views]: The memory of a view is copied as a whole if the view spans a good part of it, since other views
of it usually follow (query, key and value of one projection); otherwise only the span of the view is copied (a batch of
a data set).
"""

from __future__ import annotations

import threading
import weakref
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch

from ...saved_memory.storages import Elsewhere, StandIn
from ...torch_internals import modes, storage_ids
from .cells import Held
from .layers import Layer

#: Minimum part of the memory that a view has to span for the whole to be copied (Note [Copies of views]).
WHOLE = 0.25


class Shared:
    """A copy of some memory, and the restored storage while it is in use."""

    __slots__ = ("__weakref__", "_dtype", "_held", "_lock", "_restored", "nbytes", "policy", "print", "source")

    def __init__(
        self, held: Held, flat: torch.Tensor, policy: str, source: torch.UntypedStorage, print_: tuple[int, int] | None
    ) -> None:
        """Take the copy `held` of the flat tensor `flat`, whose memory is `source`.
        :param print_: the fingerprint of the content on the CPU; ``None`` elsewhere.
        """
        self._held, self._dtype = held, flat.dtype
        #: Bytes that were copied, and the policy's description for the ledger.
        self.nbytes, self.policy = flat.numel() * flat.element_size(), policy
        #: Whether the storage still exists; its key is not reused before it is freed.
        self.source = weakref.ref(source)
        self.print = print_
        #: The restored storage: torch makes new tensors on the memory that an unpack hook returns.
        self._restored: weakref.ref[torch.UntypedStorage] | None = None
        self._lock = threading.Lock()

    def flat(self) -> torch.Tensor:
        """Return the copied elements on their original device."""
        with self._lock:
            known = self._restored() if self._restored is not None else None
            if known is not None:
                flat = torch.empty(0, dtype=self._dtype, device=known.device)
                return flat.set_(known, 0, (known.nbytes() // flat.element_size(),), (1,))  # type: ignore[call-overload]
            flat = self._held.get()
            if flat.storage_offset() == 0:
                self._restored = weakref.ref(flat.untyped_storage())
            return flat


class Viewed(StandIn):
    """A tensor as a view of shared, copied memory."""

    __slots__ = ("_conj", "_offset", "_size", "_stride", "shared")
    safe = True

    def __init__(self, shared: Shared, tensor: torch.Tensor, start: int) -> None:
        """Note where `tensor` lies in the copied memory, which begins at element `start` of the original."""
        self.shared = shared
        self._size, self._stride = tensor.size(), tensor.stride()
        self._offset = tensor.storage_offset() - start
        self._conj = tensor.is_conj()

    def get(self) -> torch.Tensor:
        """Return the tensor as a view of the restored memory."""
        with modes.disable_function_modes(), torch.no_grad():
            flat = self.shared.flat()
            made = flat.as_strided(self._size, self._stride, flat.storage_offset() + self._offset)
            return made.conj() if self._conj else made

    def contents(self) -> Iterator[object]:
        """Yield the copy, for the ledger."""
        yield Elsewhere(id(self.shared), self.shared.policy, self.shared.nbytes)


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the index of a tensor's first element in its memory, and the index after its last."""
    first = tensor.storage_offset()
    if tensor.numel() == 0:
        return first, first
    reach = sum((size - 1) * step for size, step in zip(tensor.size(), tensor.stride(), strict=True))
    return first, first + reach + 1


def fingerprint(flat: torch.Tensor) -> tuple[int, int]:
    """Return two sums over the bits of a CPU tensor, weighted by row and by column, so that moved values change them
    too.
    """
    raw = flat.view(torch.uint8)
    whole = raw.numel() // 8192 * 8192
    tail = raw[whole:].to(torch.int64)
    tail_sum = int((tail * torch.arange(1, tail.numel() + 1)).sum()) if tail.numel() else 0
    if not whole:
        return tail_sum, raw.numel()
    if raw.storage_offset() % 8:
        raw = raw[:whole].clone()
    words = raw[:whole].view(torch.int64).view(-1, 1024)
    rows, columns = words.sum(1), words.sum(0)
    weighted = (rows * torch.arange(1, rows.numel() + 1)).sum()
    return int(weighted) + tail_sum, int((columns * torch.arange(1, 1025)).sum())


class CopyingLayer(Layer):
    """A layer that copies the memory that a tensor is a view of. Subclasses define in ``store`` where a flat tensor
    goes.
    """

    words = ""

    def __init__(self, **kwargs: Any) -> None:
        """Take the options of ``Layer``."""
        super().__init__(**kwargs)
        self._known: weakref.WeakValueDictionary[object, Shared] = weakref.WeakValueDictionary()

    def place(self, tensor: torch.Tensor) -> Held:
        """Copy the memory of a tensor, or use the copy that exists; pass the tensor on if the subclass does not copy
        it.
        """
        with modes.disable_function_modes(), torch.no_grad():
            storage = tensor.untyped_storage()
            start, end = span(tensor)
            size = storage.nbytes() // tensor.element_size()
            if end - start >= WHOLE * size:
                start, end = 0, size
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            flat.set_(storage, start, (end - start,), (1,))  # type: ignore[call-overload]
            key = (storage_ids.storage_key(storage), tensor._version, start, end, tensor.dtype)
            print_ = fingerprint(flat) if flat.is_cpu else None
            shared = self._known.get(key)
            if shared is None or shared.source() is None or shared.print != print_:
                held = self.store(flat)
                if held is None:
                    return self.hand_on(tensor)
                shared = self._known[key] = Shared(held, flat, self.words, storage, print_)
                self.bytes += shared.nbytes
            return Viewed(shared, tensor, start)

    @abstractmethod
    def store(self, flat: torch.Tensor) -> Held | None:
        """Return a copy of a flat tensor, or ``None`` to leave it where it is."""


class Moved:
    """A tensor that was copied to the CPU."""

    __slots__ = ("_device", "_held", "_pinned")
    safe = True

    def __init__(self, held: Held, device: torch.device, pinned: bool) -> None:
        """Take the copy on the CPU, the original device, and whether the copy is in pinned memory."""
        self._held, self._device, self._pinned = held, device, pinned

    def get(self) -> torch.Tensor:
        """Return the tensor on its original device."""
        return self._held.get().to(self._device, non_blocking=self._pinned)


class OnCpu(CopyingLayer):
    """The layer of ``offload.on_cpu``."""

    words = "moved to the CPU"

    def __init__(self, pin: bool = True, **kwargs: Any) -> None:
        """Take whether to use pinned memory; see ``Layer`` for the other options."""
        super().__init__(**kwargs)
        self._pin = pin
        #: Set by tests without an accelerator: copies are then made on the CPU.
        self._also_cpu = False

    def takes(self, tensor: torch.Tensor) -> bool:
        """Return whether this layer takes a tensor: only those on an accelerator."""
        return (self._also_cpu or not tensor.is_cpu) and super().takes(tensor)

    def store(self, flat: torch.Tensor) -> Held:
        """Copy a flat tensor to the CPU, without waiting if memory is pinned."""
        pinned = self._pin and flat.is_cuda
        # On the stream of the forward: the copy waits for the values, and the memory is reused only after it.
        copy = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=pinned)
        copy.copy_(flat, non_blocking=pinned)
        self.held += copy.numel() * copy.element_size()
        return Moved(self.hand_on(copy), flat.device, pinned)
