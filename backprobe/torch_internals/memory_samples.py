"""Samples of parameters, read from their memory without an operation of torch if possible."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from .private import is_dense, is_readable, is_symbolic, tensor_ref

#: Most elements of a sample.
MAX_ELEMENTS = 16
#: Format of ``array`` of the types of values that can be computed with.
FORMATS = {torch.float32: "f", torch.float64: "d"}


class MemorySample:
    """A few elements in the middle of a parameter, read from its memory without an operation of torch."""

    __slots__ = ("_address", "_memory", "_numel", "format", "ref", "storage")

    def __init__(self, parameter: torch.Tensor) -> None:
        """Take the parameter; its memory is searched for at the first ``read``."""
        self.ref, self.format = tensor_ref(parameter), FORMATS.get(parameter.dtype, "")
        self._address, self.storage, self._numel = 0, 0, parameter.numel()
        self._memory: ctypes.Array[ctypes.c_char] = (ctypes.c_char * 0)()

    def read(self) -> bytes | None:
        """Return the bytes of the sampled elements now; ``None`` if the parameter has no readable memory any more."""
        parameter = self.ref()
        if parameter is None:
            return None
        address = parameter.data_ptr()
        # A smaller tensor may have got the address since.
        is_known = address == self._address and parameter.numel() == self._numel
        if not is_known and not self._find(parameter, address):
            return None
        return self._memory.raw

    def _find(self, parameter: torch.Tensor, address: int) -> bool:
        """Find the sample in the memory of `parameter`, which begins at `address`; return whether it can be read."""
        self._address = 0
        if not address or not has_memory(parameter) or parameter.numel() != self._numel:
            return False
        self._address, self.storage = address, parameter.untyped_storage().data_ptr()
        self._memory = _memory_of(parameter)
        return True

    def of(self, tensor: object) -> bytes | None:
        """Return the elements of `tensor`, which is about to be copied to the parameter, at the places of the sample.
        :returns: ``None`` if they cannot be read.
        """
        parameter = self.ref()
        if parameter is None or not isinstance(tensor, torch.Tensor) or not has_memory(tensor):
            return None
        if tensor.dtype != parameter.dtype or tensor.numel() != self._numel:
            return None
        return _memory_of(tensor).raw


class WriteSample:
    """A few elements of a parameter, and its version counter: whether something has written to it since."""

    __slots__ = ("_before", "_memory", "_version", "ref")

    def __init__(self, parameter: torch.Tensor) -> None:
        """Read the elements and the version now, to compare with later."""
        self.ref, self._version = tensor_ref(parameter), parameter._version
        self._memory = MemorySample(parameter) if has_memory(parameter) else None
        self._before = self._read(parameter)

    def _read(self, parameter: torch.Tensor) -> Any:
        """Return the elements now: from memory if possible, otherwise as a tensor; ``None`` if they cannot be read."""
        return self._memory.read() if self._memory is not None else _copy_of_some(parameter)

    def is_changed(self) -> bool | torch.Tensor:
        """Return whether something has written to the parameter, also through ``data``.

        It is a flag on its device if the parameter is on an accelerator and has the same version.
        """
        parameter = self.ref()
        if parameter is None or parameter._version != self._version:
            return parameter is not None
        before, now = self._before, self._read(parameter)
        if before is None or now is None:
            return False
        if self._memory is not None:
            return bool(now != before)
        return now.shape == before.shape and now.device == before.device and (now != before).any()


def _copy_of_some(parameter: torch.Tensor) -> torch.Tensor | None:
    """Return a copy of a few elements; ``None`` if they cannot be read."""
    if not is_readable(parameter) or not parameter.numel() or not parameter.is_floating_point():
        return None
    row = parameter.detach()
    while row.dim() > 1:
        row = row[0]
    return row.reshape(-1)[:MAX_ELEMENTS].clone()


def _memory_of(tensor: torch.Tensor) -> ctypes.Array[ctypes.c_char]:
    """Return the memory of the elements in the middle of `tensor`, which stays valid only while the tensor has it."""
    count = min(tensor.numel(), MAX_ELEMENTS)
    size = tensor.element_size()
    address = tensor.data_ptr() + (tensor.numel() - count) // 2 * size
    memory: ctypes.Array[ctypes.c_char] = (ctypes.c_char * (count * size)).from_address(address)
    return memory


def has_memory(tensor: torch.Tensor) -> bool:
    """Return whether the elements of `tensor` lie one after the other in memory that this process can read."""
    if not is_dense(tensor) or not tensor.is_cpu or tensor.is_inference() or is_symbolic(tensor):
        return False
    return bool(tensor.is_contiguous() and tensor.numel() > 0)
