"""Measure tensors: one pass for a norm, and a closer look where the norm is suspicious."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..records import BadValues, TensorStat
from . import modes

_norm = torch.linalg.vector_norm
_HALF = frozenset({torch.float16, torch.bfloat16})
_FULL = frozenset({torch.float32, torch.float64})
#: From this many elements on a dot product is worth its detour: it uses wider instructions, and all threads.
_LARGE = 16_384


def norm_of(tensor: Any) -> Any:
    """2-norm as a tensor of no dimension, in one pass."""
    dtype = tensor.dtype
    if dtype in _HALF:
        return _norm(tensor, dtype=torch.float32)
    if tensor.numel() > _LARGE and dtype in _FULL and tensor.is_cpu and tensor.is_contiguous():
        flat = tensor.view(-1)
        return torch.dot(flat, flat).sqrt_()
    return _norm(tensor)


def sum_of(tensor: Any) -> Any:
    """The sum, which is finite only if every element is: half a norm's time. In float16 it would overflow."""
    return tensor.sum(dtype=torch.float32) if tensor.dtype is torch.float16 else tensor.sum()


FLOATS = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.complex32}
)
#: How many positions of bad elements a record names.
FIRST = 3
#: Tensors of at most this many elements are measured in batches: the call costs more than the pass.
SMALL = 4096
#: Tensors in a batch.
BATCH = 64


class Norms:
    """2-norms of many tensors, cheaply. Slot by slot: ``take`` gives a slot, ``values[slot]`` holds its norm after
    ``flush``; ``nan`` where it could not be measured (see ``unmeasured``).

    Small tensors of one shape wait in a batch and are stacked: 0.3 microseconds each, against 2 alone. A batch holds
    them until it is full, at most ``BATCH * SMALL`` elements a shape. On an accelerator the norms stay there until
    ``flush``, which reads them with one synchronisation.

    A NaN or Inf in a tensor shows in its norm. The converse does not hold: the square can overflow.

    :param on_bad: called with slot, tensor and what is wrong with it, when that is found (not for an accelerator's).
    :param brief: do not count the elements of a bad tensor.
    :param sums: take sums in place of norms: enough to see what is not finite.
    :param plain: measure no tensor of a subclass.
    """

    def __init__(
        self,
        on_bad: Callable[[int, Any, BadValues], None] | None = None,
        brief: bool = False,
        sums: bool = False,
        plain: bool = False,
    ) -> None:
        self._brief, self._sums, self.plain = brief, sums, plain
        self._of = sum_of if sums else norm_of
        self._on_bad = on_bad
        self.values: list[float] = []
        self.unmeasured: set[int] = set()
        #: Slots whose tensor really held non-finite elements, and which.
        self.bad: dict[int, BadValues] = {}
        self._batches: dict[Any, Any] = {}
        self._device: list[tuple[int, Any]] = []

    def take(self, tensor: Any) -> int:
        """A slot for `tensor`, which may be held until the batch is full."""
        values = self.values
        slot = len(values)
        values.append(0.0)
        key = (tensor.shape, tensor.dtype)
        batch: tuple[list[Any], list[int]] | None
        try:
            batch = self._batches[key]
        except KeyError:
            batch = self._batches[key] = ([], []) if _batchable(tensor) else None
        if batch is None:
            self.into(slot, tensor)
        else:
            batch[0].append(tensor)
            batch[1].append(slot)
            if len(batch[0]) >= BATCH:
                self._run(batch)
        return slot

    def now(self, tensor: Any) -> int:
        """A slot for `tensor`, measured before this returns."""
        slot = len(self.values)
        self.values.append(0.0)
        self.into(slot, tensor)
        return slot

    def into(self, slot: int, tensor: Any) -> None:
        """Measure `tensor` before this returns, for a slot that there is already."""
        if self.plain and not modes.is_plain(tensor):
            self.values[slot] = math.nan
            self.unmeasured.add(slot)
            return
        try:
            norm = self._of(tensor)
            if norm.is_cpu:
                value = self.values[slot] = norm.item()
                if value - value != 0.0:
                    self._suspect(slot, tensor)
            elif norm.is_meta:
                self._odd(slot, tensor)
            else:
                self._device.append((slot, norm))
        except (RuntimeError, NotImplementedError, TypeError):
            self._odd(slot, tensor)
        except Exception:  # what the code of a subclass raises is no fault of ours
            if modes.is_plain(tensor):
                raise
            self._odd(slot, tensor)

    def _odd(self, slot: int, tensor: Any) -> None:
        try:
            if tensor.layout is torch.sparse_coo:
                self.into(slot, tensor.coalesce().values())
                return
        except (RuntimeError, NotImplementedError, TypeError, AttributeError):
            pass
        self.values[slot] = math.nan
        self.unmeasured.add(slot)

    def _run(self, batch: tuple[list[Any], list[int]]) -> None:
        tensors, slots = batch
        values = self.values
        try:
            stacked = torch.stack(tensors)
            half = torch.float32 if stacked.dtype in _HALF else None
            if self._sums:
                norms = stacked.flatten(1).sum(1, dtype=half) if stacked.dim() > 1 else stacked
            else:
                norms = _norm(stacked.flatten(1), dim=1, dtype=half) if stacked.dim() > 1 else stacked.abs()
            for at, value in enumerate(norms.tolist()):
                values[slots[at]] = value
                if value - value != 0.0:
                    self._suspect(slots[at], tensors[at])
        except (RuntimeError, NotImplementedError, TypeError):  # one of them is of another device, layout or class
            for slot, tensor in zip(slots, tensors, strict=True):
                self.into(slot, tensor)
        tensors.clear()
        slots.clear()

    def batch(self, slots: list[int], tensors: list[Any]) -> None:
        """Measure `tensors`, all of one shape, for slots that there are already. Empties both lists."""
        if _batchable(tensors[0]):
            for at in range(0, len(slots), 4 * BATCH):
                self._run((tensors[at : at + 4 * BATCH], slots[at : at + 4 * BATCH]))
        else:
            for slot, tensor in zip(slots, tensors, strict=True):
                self.into(slot, tensor)
        slots.clear()
        tensors.clear()

    def _suspect(self, slot: int, tensor: Any) -> None:
        """A norm that is not finite: elements that are not, or a square that overflowed."""
        value = self.values[slot]
        found = BadValues(int(value != value), int(value == value), 0, ()) if self._brief else bad_values(tensor)
        if found is not None:
            self.bad[slot] = found
            if self._on_bad is not None:
                self._on_bad(slot, tensor, found)
        elif not self._sums:
            self.values[slot] = float(_norm(tensor.detach(), dtype=torch.float64 if not tensor.is_complex() else None))

    def flush(self) -> None:
        """Measure what waits. After this every slot has its value."""
        self.flush_batches()
        if self._device:
            waiting, self._device = self._device, []
            by_device: dict[Any, list[tuple[int, Any]]] = {}
            for slot, norm in waiting:
                by_device.setdefault(norm.device, []).append((slot, norm.float()))
            for group in by_device.values():
                for (slot, _), value in zip(group, torch.stack([n for _, n in group]).tolist(), strict=True):
                    self.values[slot] = value
                    if value - value != 0.0:  # the tensor is gone: its norm tells NaN from Inf, and no more
                        self.bad[slot] = BadValues(int(value != value), int(value == value), 0, ())
                        if self._on_bad is not None:
                            self._on_bad(slot, None, self.bad[slot])

    def flush_batches(self) -> None:
        """Let go of the tensors that wait."""
        for batch in self._batches.values():
            if batch and batch[0]:
                self._run(batch)

    def clear(self) -> None:
        """Forget what was measured; slots count from 0 again."""
        self.values, self.unmeasured, self.bad = [], set(), {}


def _batchable(tensor: Any) -> bool:
    return bool(
        type(tensor) is torch.Tensor
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.dtype in FLOATS
        and 0 < tensor.numel() <= SMALL
    )


def joint_norm(tensors: Iterable[Any]) -> float | None:
    """2-norm of the plain float tensors among `tensors`, all of them together; ``None`` where that cannot be had."""
    norms = []
    with modes.unseen(), modes.unnoticed(), torch.no_grad():
        for tensor in tensors:
            if tensor.dtype not in FLOATS or tensor.layout is not torch.strided or tensor.is_meta:
                continue
            if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
                return None
            try:
                norms.append(float(norm_of(tensor.detach())))
            except (RuntimeError, NotImplementedError):  # a tensor of no values of its own, as under vmap
                return None
    return math.hypot(*norms) if norms else None


def is_float(tensor: Any) -> bool:
    return tensor.dtype in FLOATS


def bad_values(tensor: Any) -> BadValues | None:
    """The non-finite elements of `tensor`, or ``None`` where there are none. Slow: for suspects only."""
    if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    with torch.no_grad():
        try:
            values = tensor.detach()
            if values.layout is not torch.strided:
                values = values.coalesce().values() if values.layout is torch.sparse_coo else values.values()
            wrong = ~torch.isfinite(values)
            if not bool(wrong.any()):
                return None
            nan = int(torch.isnan(values).sum())
            total = int(wrong.sum())
            first = tuple(tuple(int(i) for i in row) for row in wrong.nonzero()[:FIRST].tolist())
        except (RuntimeError, NotImplementedError):
            return None
    return BadValues(nan, total - nan, values.numel(), tuple(tensor.shape), first)


def shape_of(value: Any) -> tuple[int, ...]:
    """Sizes as numbers: -1 for one that is symbolic and has no value, a single -1 where there are none to be had."""
    try:
        return sizes(value.shape)
    except RuntimeError:
        return (-1,)


def sizes(shape: Any) -> tuple[int, ...]:
    """The same of a shape."""
    found: tuple[int, ...] = tuple(shape)
    for n in found:
        if type(n) is not int:
            return tuple(map(_size, found))
    return found


def _size(number: Any) -> int:
    try:
        return int(number)
    except Exception:  # a nested or data-dependent size: torch raises one of several types of its own
        return -1


def stat_of(name: str, tensor: torch.Tensor) -> TensorStat:
    zeros = None
    with torch.no_grad():
        if tensor.layout is torch.strided and tensor.numel():
            try:
                zeros = int((tensor.detach() == 0).sum())
            except (RuntimeError, NotImplementedError):
                zeros = None
    return TensorStat(name, shape_of(tensor), dtype_name(tensor.dtype), bad_values(tensor), zeros, not tensor.is_leaf)


def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
