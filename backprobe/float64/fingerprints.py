"""Fingerprints of tensors: exact, and such that the distance of two can be told from them.

Note [Sketches]: each value goes, with a sign drawn by its place, into one of ``GROUPS`` sums. The squared distance of
two sketches is that of the tensors in the mean, and within about a quarter of it. Signs come from SHAKE-256 of a fixed
text: every machine has the same, and no generator of torch's is touched.
"""

from __future__ import annotations

import ctypes
import hashlib
from functools import cache

import torch

from ..records import Print
from ..torch_internals import private
from ..torch_internals.measure import dtype_name, shape_of

GROUPS = 32
#: Period of the signs in elements; each period has a further sign of its own.
STRETCH = 1 << 16
#: Number of values that are converted and summed at a time.
_SLAB = 1 << 22


@cache
def _bits() -> bytes:
    """Return the fixed random bits from which signs are made."""
    return hashlib.shake_256(b"backprobe: signs of places").digest(STRETCH // 8)


@cache
def _signs() -> torch.Tensor:
    """Return the sign of each place of a stretch, as 1.0 or -1.0."""
    bits = torch.frombuffer(bytearray(_bits()), dtype=torch.uint8)
    spread = (bits[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
    return 1.0 - 2.0 * spread.reshape(-1).double()


@cache
def _first_sign() -> float:
    """Return the sign of the first stretch."""
    return float(_signs()[0])


def _stretch(part: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Return the ``GROUPS`` sums of at most one stretch of a vector, each element times its sign; element i is in group
    i modulo ``GROUPS``.
    """
    n = part.numel()
    signed = part * signs[:n]
    if n % GROUPS:
        signed = torch.cat([signed, signed.new_zeros(GROUPS - n % GROUPS)])
    return signed.reshape(-1, GROUPS).sum(0)


def sketch(flat: torch.Tensor) -> torch.Tensor:
    """Return the ``GROUPS`` signed sums of a vector in float64, to estimate the distance of two vectors from."""
    signs = _signs()
    if flat.numel() <= STRETCH:
        return _stretch(flat.double(), signs) * _first_sign()
    total = torch.zeros(GROUPS, dtype=torch.float64)
    for begin in range(0, flat.numel(), _SLAB):
        part = flat[begin : begin + _SLAB].double()
        n = part.numel()
        if n <= STRETCH:
            total += _stretch(part, signs) * signs[begin // STRETCH % STRETCH]
            continue
        if n % STRETCH:
            part = torch.cat([part, part.new_zeros(STRETCH - n % STRETCH)])
        rows = (part.reshape(-1, STRETCH) * signs).reshape(-1, STRETCH // GROUPS, GROUPS).sum(1)
        first = begin // STRETCH
        places = (torch.arange(rows.shape[0]) + first) % STRETCH
        total += (rows * signs[places][:, None]).sum(0)
    return total


def plain(tensor: torch.Tensor) -> bool:
    """Return whether the values of `tensor` can be read: it is a plain torch tensor with allocated memory."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return False
    if tensor.is_meta or tensor.is_quantized or private.is_wrapped(tensor) or private.in_transform():
        return False  # what is made of it inside a transform is wrapped
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    if not tensor.numel():
        return True
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.untyped_storage()
    if memory.device.type == "meta" or memory.nbytes() < (last + 1) * tensor.element_size():
        return False
    try:
        return bool(tensor.data_ptr() != 0)  # zeros that forward mode makes have none
    except RuntimeError:
        return False


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values in logical order, on the CPU. They may share memory with `tensor`."""
    values = tensor.detach()
    if values.is_conj() or values.is_neg():
        values = values.resolve_conj().resolve_neg()
    return values.to("cpu").contiguous()


def digest(values: torch.Tensor) -> str:
    """Return a hash of shape, dtype and bytes of the result of ``values_of``."""
    made = hashlib.blake2b(f"{dtype_name(values.dtype)}{tuple(values.shape)}".encode(), digest_size=12)
    size = values.numel() * values.element_size()
    if size:
        made.update((ctypes.c_char * size).from_address(values.data_ptr()))
    return made.hexdigest()


def print_of(values: torch.Tensor, hashed: str | None = None) -> Print:
    """Return the fingerprint of a tensor's values: shape, dtype, hash, norm, number of non-finite values, signed sums.
    :param hashed: the hash, if it is known.
    """
    wide = torch.view_as_real(values) if values.is_complex() else values
    flat = wide.reshape(-1)
    if flat.dtype.is_floating_point and flat.element_size() == 1:
        flat = flat.float()
    sums = sketch(flat)
    norm: float | None = None
    bad = 0
    if not torch.isfinite(sums).all():
        bad = int((~torch.isfinite(flat)).sum())
    if not bad:
        norm = (
            float(torch.linalg.vector_norm(flat, dtype=torch.float64))
            if flat.dtype.is_floating_point
            else float(flat.double().norm())
        )
    shape = shape_of(values) or tuple(values.shape)
    kept = tuple(sums.tolist()) if norm else ()
    return Print(tuple(shape), dtype_name(values.dtype), hashed or digest(values), norm, bad, kept)
