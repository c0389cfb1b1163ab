"""Smaller forms of a flat tensor, and the way back.

Lossless forms, in the order in which they are tried:

- bools as bits: one byte for eight (masks of dropout, of comparisons);
- integers in the narrowest type that holds them all (indices of embeddings and of pooling);
- floats with many exact zeros as a bit mask and the other values (after ReLU, dropout), bit for bit: a negative zero
  counts as a value;
- on request, zlib over the planes of bytes: all first bytes, then all second ones; exponents repeat, mantissas do not.

Lossy: a narrower floating-point type. Types with a small range get a power of two as scale, so that the largest value
fits; such a scale costs no precision of its own.
"""

from __future__ import annotations

import ctypes
import math
import zlib

import torch

from .cells import Held

#: Integer types from narrow to wide.
_NARROW = (torch.uint8, torch.int8, torch.int16, torch.int32)
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def pack_bits(mask: torch.Tensor) -> torch.Tensor:
    """Return a flat bool tensor as bytes, the first element in the lowest bit."""
    padded = torch.zeros(-(-mask.numel() // 8) * 8, dtype=torch.uint8, device=mask.device)
    padded[: mask.numel()] = mask
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=mask.device)
    return (padded.view(-1, 8) * weights).sum(1, dtype=torch.uint8)


def unpack_bits(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Return `count` bools from bytes that ``pack_bits`` made."""
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=packed.device)
    return (packed.unsqueeze(1) & weights).ne(0).view(-1)[:count]


class Bits:
    """Bools, eight in a byte."""

    safe = True

    def __init__(self, packed: Held, count: int) -> None:
        """Take the packed bytes, and the number of bools."""
        self._packed, self._count = packed, count

    def get(self) -> torch.Tensor:
        """Return the bools as a flat tensor."""
        return unpack_bits(self._packed.get(), self._count)


class Cast:
    """Values in a narrower type, with a scale if the type's range is small."""

    safe = True

    def __init__(self, narrow: Held, dtype: torch.dtype, scale: float) -> None:
        """Take the values in the narrower type, the original type, and the factor to multiply by."""
        self._narrow, self._dtype, self._scale = narrow, dtype, scale

    def get(self) -> torch.Tensor:
        """Return the values in the original type."""
        wide = self._narrow.get().to(self._dtype)
        return wide if self._scale == 1.0 else wide * self._scale


class NonZero:
    """A bit mask, and the values where it is set."""

    safe = True

    def __init__(self, mask: Held, values: Held, count: int) -> None:
        """Take the packed mask, the values, and the number of all elements."""
        self._mask, self._values, self._count = mask, values, count

    def get(self) -> torch.Tensor:
        """Return all elements as a flat tensor."""
        mask, values = unpack_bits(self._mask.get(), self._count), self._values.get()
        bits = values.view(_BITS[values.element_size()])  # as floats, NaN could change its bits
        flat = torch.zeros(self._count, dtype=bits.dtype, device=bits.device)
        flat[mask] = bits  # a single value represents all
        return flat.view(values.dtype)


class Deflated:
    """Planes of bytes, compressed by zlib."""

    safe = True

    def __init__(self, content: Held, dtype: torch.dtype, device: torch.device) -> None:
        """Take the compressed bytes, and the type and device of the original."""
        self._content, self._dtype, self._device = content, dtype, device

    def get(self) -> torch.Tensor:
        """Return the decompressed values as a flat tensor on their device."""
        raw = bytearray(zlib.decompress(_memory(self._content.get())))
        planes = torch.frombuffer(raw, dtype=torch.uint8).view(self._dtype.itemsize, -1)
        return planes.t().contiguous().view(-1).view(self._dtype).to(self._device)


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor, without NumPy and without a copy. Valid while `tensor` is alive."""
    return memoryview((ctypes.c_char * tensor.numel()).from_address(tensor.data_ptr()))


def lossless(flat: torch.Tensor, level: int) -> tuple[str, tuple[torch.Tensor, ...]] | None:
    """Return the name and parts of a lossless form, or ``None`` if no form is smaller than nine tenths of the
    original.
    """
    if flat.numel() < 64:
        return None
    if flat.dtype is torch.bool:
        return "bits", (pack_bits(flat),)
    if flat.dtype in (torch.int16, torch.int32, torch.int64):
        low, high = (int(v) for v in torch.aminmax(flat))
        for dtype in _NARROW:
            info = torch.iinfo(dtype)
            if dtype.itemsize < flat.element_size() and info.min <= low and high <= info.max:
                return "cast", (flat.to(dtype),)
    elif flat.is_floating_point() and flat.element_size() in _BITS:
        # The bits decide: a negative zero counts as a value.
        mask = flat.view(_BITS[flat.element_size()]).ne(0)
        count = int(mask.sum())
        if count * flat.element_size() + flat.numel() / 8 < 0.9 * flat.numel() * flat.element_size():
            values = flat[mask]
            bits = values.view(_BITS[flat.element_size()])
            if count and bool((bits == bits[0]).all()):  # a dropout mask: zeros and 1/(1-p)
                values = values[:1].clone()
            return "nonzero", (pack_bits(mask), values)
    if level and flat.numel():
        planes = flat.detach().cpu().view(torch.uint8).view(-1, flat.element_size()).t().contiguous()
        packed = zlib.compress(_memory(planes), level)
        if len(packed) < 0.9 * planes.numel():
            # A copy, so that the memory is torch's own and memory measurements see it.
            return "zlib", (torch.frombuffer(bytearray(packed), dtype=torch.uint8).clone(),)
    return None


def restore(form: str, parts: list[Held], flat: torch.Tensor) -> Held:
    """Return an object that restores `flat` from the parts of its form."""
    if form == "bits":
        return Bits(parts[0], flat.numel())
    if form == "cast":
        return Cast(parts[0], flat.dtype, 1.0)
    if form == "nonzero":
        return NonZero(parts[0], parts[1], flat.numel())
    return Deflated(parts[0], flat.dtype, flat.device)


def narrowed(flat: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, float] | None:
    """Return `flat` in a narrower floating-point type, and the scale to multiply by; ``None`` if the type is not
    narrower.
    """
    if not flat.is_floating_point() or flat.element_size() <= dtype.itemsize or not flat.numel():
        return None
    most = torch.finfo(dtype).max
    if most >= 1e38:  # as wide a range as float32
        return flat.to(dtype), 1.0
    finite = torch.where(torch.isfinite(flat), flat.abs(), 0)
    largest = float(finite.max())
    # As large as the type can hold, so that small values lose least; no scale if all values are zero.
    scale = 2.0 ** math.ceil(math.log2(largest / most)) if largest > 0 else 1.0
    return (flat / scale).to(dtype), scale
