"""Computes the 2-norm of a tensor: one quick pass, and a second look if its result is not reliable.

Note [Norms that hold]: a norm of 0.0 means that no element differs from zero, an infinite one that an element is
infinite, NaN that one is NaN. In single precision, squares underflow below 1e-23 and overflow above 1e19, and a long
sum loses digits. So a quick norm between ``MIN_ACCURATE_NORM`` and infinity is accepted (whatever underflowed is
below its last digit), and so is NaN; for all others the tensor is measured again, scaled or in double precision. That
has to be done while the tensor exists. Off the CPU, nothing waits for the first result: see ``Norms`` in ``measure``.

Note [Tiny gradients]: squares that underflow are not only lost, they are slow: a processor takes many times as long for
subnormal numbers. A norm that was below ``MIN_ACCURATE_NORM`` in the last call is expected to be so in this one: the
tensor is scaled up before anything is squared. The result equals that of the second measurement.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator

import torch

from ..records import together
from . import modes

_norm = torch.linalg.vector_norm
_HALF = frozenset({torch.float16, torch.bfloat16})
_FULL = frozenset({torch.float32, torch.float64})
_SINGLE = frozenset({torch.float32, *_HALF})
#: Tensors with more elements are summed in pieces: a long sum in single precision loses digits (one percent at 16
#: million elements), and a dot product uses wider instructions, and all threads.
MAX_UNSPLIT_ELEMENTS = 16_384
#: The number of elements of a piece.
_PIECE = 1 << 20
#: A quick norm above this is accurate to its last digits.
MIN_ACCURATE_NORM = 1e-14
#: Factors that scale a tensor whose norm is at most MIN_ACCURATE_NORM, or whose squares overflowed, to a range without
#: underflow and overflow.
_UP, _DOWN = 2.0**100, 2.0**-80


def quick_norm(tensor: torch.Tensor) -> torch.Tensor:
    """Return the 2-norm as a tensor of no dimension, in one pass: Note [Norms that hold]."""
    return _norm(tensor, dtype=torch.float32) if tensor.dtype in _HALF else _norm(tensor)


def is_reliable(value: float) -> bool:
    """Return whether a quick norm needs no second look."""
    return MIN_ACCURATE_NORM < value < math.inf or value != value


def norm(tensor: torch.Tensor) -> float:
    """Return the 2-norm of a tensor of any dtype, layout and device: Note [Norms that hold]. Waits for the device.

    :raises RuntimeError, NotImplementedError, TypeError: the tensor has no values that can be read.
    """
    if tensor.layout is not torch.strided or tensor.dtype not in _SINGLE:
        return exact_norm(tensor)
    large = tensor.numel() > MAX_UNSPLIT_ELEMENTS and tensor.is_cpu and modes.is_plain(tensor)
    value = quick_norm_of_large(tensor) if large else float(quick_norm(tensor))
    return value if is_reliable(value) else remeasured_norm(tensor, value)


def device_norm(tensor: torch.Tensor) -> torch.Tensor:
    """Return the norm as a tensor of no dimension in double precision, without waiting for the device."""
    if tensor.is_cpu:
        return torch.tensor(norm(tensor), dtype=torch.float64)
    wide = torch.float32 if tensor.device.type == "mps" else torch.float64
    return _norm(torch.stack([_norm(piece, dtype=wide) for piece in _pieces(_elements(tensor))]))


def quick_norm_of_large(tensor: torch.Tensor) -> float:
    """Return the norm of a large plain tensor on the CPU, summed in pieces; it may be unreliable if tiny or
    infinite.
    """
    if tensor.dim() == 2 and not tensor.is_contiguous():
        tensor = tensor.t()  # the layout of weight gradients
    if tensor.is_contiguous() and tensor.numel() <= _PIECE and tensor.dtype in _FULL:
        flat = tensor.view(-1)
        return math.sqrt(torch.dot(flat, flat).item())
    total = 0.0
    repeats, tensor = _without_repetitions(torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor)
    for piece in _pieces(tensor):
        if piece.dtype in _HALF:
            piece = piece.float()
        total += torch.dot(piece, piece).item()
    return math.sqrt(total * repeats)


def remeasured_norm(tensor: torch.Tensor, value: float) -> float:
    """Return the accurate norm of a tensor whose quick norm, `value`, is not reliable."""
    size = tensor.numel()
    if tensor.dtype not in _SINGLE or tensor.layout is not torch.strided or size > _PIECE or not tensor.is_cpu:
        return exact_norm(tensor)
    factor = _UP if value <= MIN_ACCURATE_NORM else _DOWN
    scaled = (tensor.float() if tensor.dtype in _HALF else tensor) * factor
    return (quick_norm_of_large(scaled) if size > MAX_UNSPLIT_ELEMENTS else float(_norm(scaled))) / factor


def exact_norm(tensor: torch.Tensor) -> float:
    """Return the norm, computed in a slow way that is always accurate."""
    values = _elements(tensor)
    if not modes.is_plain(values):
        return float(_norm(values, dtype=torch.float64))
    repeats, values = _without_repetitions(values)
    return together([math.sqrt(repeats) * _norm_of_piece(piece) for piece in _pieces(values)] or [0.0])


def remeasured_row_norms(rows: torch.Tensor, places: list[int], values: list[float]) -> list[float]:
    """Return the accurate norms of some rows of a plain matrix on the CPU, whose quick norms are `values`."""
    if rows.dtype not in _SINGLE:
        return [exact_norm(rows[i]) for i in places]
    some = rows if len(places) == len(rows) else rows[places]
    factors = [_UP if value <= MIN_ACCURATE_NORM else _DOWN for value in values]
    by = factors[0] if len(set(factors)) == 1 else torch.tensor(factors).unsqueeze(1)
    found = _norm((some.float() if some.dtype in _HALF else some) * by, dim=1).tolist()
    return [value / factor for value, factor in zip(found, factors, strict=True)]


def can_scale_rows(rows: torch.Tensor) -> bool:
    """Return whether ``scaled_row_norms`` supports a plain matrix."""
    return rows.dtype in _SINGLE


def scaled_row_norms(rows: torch.Tensor, tiny: Collection[int]) -> list[float]:
    """Return the norms of the rows of a plain matrix on the CPU, of which the rows `tiny` are scaled up first.

    The norm is infinite if such a row is not tiny.
    """
    everything = len(tiny) == len(rows)
    factors = [_UP if everything or at in tiny else 1.0 for at in range(len(rows))]
    by: float | torch.Tensor = _UP if everything else torch.tensor(factors, dtype=torch.float32).unsqueeze(1)
    found = _norm((rows.float() if rows.dtype in _HALF else rows) * by, dim=1).tolist()
    return [value / factor for value, factor in zip(found, factors, strict=True)]


def _norm_of_piece(piece: torch.Tensor) -> float:
    """Return the accurate norm of a vector, in double precision where the device and dtype allow it, else scaled."""
    if piece.device.type != "mps" and piece.dtype is not torch.float64:
        return float(_norm(piece, dtype=torch.float64))
    top = float(_norm(piece, math.inf)) if piece.numel() else 0.0
    if not 0.0 < top < math.inf:
        return top
    return min(top * float(_norm(piece / top)), sys.float_info.max)


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of `tensor` as a strided tensor of real numbers."""
    values = tensor.detach()
    if values.layout is torch.sparse_coo:
        values = values.coalesce().values()
    elif values.layout is not torch.strided:
        values = values.to_dense() if values.is_mkldnn else values.values()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if values.dtype not in _SINGLE and values.dtype is not torch.float64:  # eight-bit floats, integers
        values = values.to(torch.float32 if values.is_floating_point() else torch.float64)
    return values


def _without_repetitions(tensor: torch.Tensor) -> tuple[int, torch.Tensor]:
    """Return how often an expanded tensor repeats each element, and the tensor without the repetitions."""
    repeats = 1
    for dim, stride in enumerate(tensor.stride()):
        if not stride and (size := tensor.shape[dim]) > 1:
            repeats, tensor = repeats * size, tensor.narrow(dim, 0, 1)
    return repeats, tensor


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the elements of `tensor` in vectors, in any order; contiguous memory is not copied."""
    if not tensor.is_contiguous():
        tensor = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    if tensor.numel() <= _PIECE or tensor.is_contiguous():
        yield from tensor.reshape(-1).split(_PIECE)
        return
    widest = max(range(tensor.dim()), key=lambda dim: int(tensor.shape[dim]))
    for half in tensor.tensor_split(2, widest):
        yield from _pieces(half)
