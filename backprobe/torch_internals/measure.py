"""Measures tensors: one pass for a norm, and a closer look if the norm is suspicious."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..records import BadValues, TensorStat, together
from . import modes
from .async_scalars import Later, capturing, fetch
from .local import is_partial, local
from .norms import (
    MAX_UNSPLIT_ELEMENTS,
    MIN_ACCURATE_NORM,
    can_scale_rows,
    device_norm,
    exact_norm,
    is_reliable,
    norm,
    quick_norm,
    quick_norm_of_large,
    remeasured_norm,
    remeasured_row_norms,
    scaled_row_norms,
)

_norm = torch.linalg.vector_norm
_inf = math.inf
_HALF = frozenset({torch.float16, torch.bfloat16})


def sum_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum, which is finite only if every element is. Takes half the time of a norm.

    float16 is summed in float32.
    """
    return tensor.sum(dtype=torch.float32) if tensor.dtype is torch.float16 else tensor.sum()


FLOATS = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.complex32}
)
#: How many positions of bad elements a record lists.
MAX_BAD_POSITIONS = 3
#: Tensors of at most this many elements are measured in batches: the call costs more than the pass.
MAX_BATCHED_ELEMENTS = 4096
#: The most tensors in a batch.
BATCH = 64
#: Tensors of at most this many elements on an accelerator are measured in double precision: the call costs more than
#: the pass.
MAX_DOUBLE_ELEMENTS = 1 << 20


class Norms:
    """Batched measurement of the 2-norms of many tensors, following Note [Norms that hold].

    ``take`` returns a slot; ``values[slot]`` has its norm after ``flush``, or ``nan`` if it could not be measured (see
    ``unmeasured``).

    Small tensors of one shape wait in a batch and are stacked: 0.3 microseconds each, instead of 2. A batch keeps them
    alive until it is full, at most ``BATCH * MAX_BATCHED_ELEMENTS`` elements per shape.

    On an accelerator the norms stay there until ``flush``, which reads them with one wait, when the tensors are gone;
    ``flush_together`` reads those of several objects together. So small tensors are measured in double precision at
    once, and for large ones the largest absolute element is measured too: it tells zero, NaN and Inf apart. A norm out
    of the range of its precision is unknown then, and counts as unmeasured.

    :param on_bad: called with slot, tensor and bad values when they are found; on an accelerator, where they are found
        when the tensor is gone, the tensor is ``None``.
    :param brief: do not count the NaN and Inf of a bad tensor.
    :param sums: compute sums instead of norms: enough to detect non-finite values.
    :param plain: do not measure tensor subclasses.
    """

    def __init__(
        self,
        on_bad: Callable[[int, torch.Tensor, BadValues], None] | None = None,
        brief: bool = False,
        sums: bool = False,
        plain: bool = False,
    ) -> None:
        """Begin without slots."""
        self._brief, self._sums, self.plain = brief, sums, plain
        self._measure_quickly = sum_of if sums else quick_norm
        self._on_nonfinite = on_bad
        self.values: list[float] = []
        #: Norms that these slots had before, or empty: a tensor whose norm was tiny is scaled up at once.
        self.hints: Sequence[float] = ()
        self.unmeasured: set[int] = set()
        #: Slots with non-finite elements, or at least with a norm that is not finite, and what is known of them.
        self.bad: dict[int, BadValues] = {}
        self._batches: dict[object, tuple[list[torch.Tensor], list[int]] | None] = {}
        #: Norms on accelerators that are not read yet: slot, norm, largest element or ``None``.
        self._device_norms: list[tuple[int, torch.Tensor, Any]] = []
        #: The streams that compute them.
        self.streams: set[object] = set()

    def take(self, tensor: torch.Tensor) -> int:
        """Return a slot for `tensor`, which may be kept alive until the batch is full."""
        values = self.values
        slot = len(values)
        values.append(0.0)
        key = (tensor.shape, tensor.dtype)
        batch: tuple[list[torch.Tensor], list[int]] | None
        try:
            batch = self._batches[key]
        except KeyError:
            batch = self._batches[key] = ([], []) if _can_batch(tensor) else None
        if batch is None:
            self.into(slot, tensor)
        else:
            batch[0].append(tensor)
            batch[1].append(slot)
            if len(batch[0]) >= BATCH:
                self._measure_batch(batch)
        return slot

    def now(self, tensor: torch.Tensor) -> int:
        """Measure `tensor` at once and return its slot."""
        slot = len(self.values)
        self.values.append(0.0)
        self.into(slot, tensor)
        return slot

    def into(self, slot: int, tensor: object) -> None:
        """Measure `tensor` at once, for an existing slot; on an accelerator, begin to measure it.

        For a distributed tensor, the local part: Note [No own collectives].
        """
        if self.plain and not modes.is_plain(tensor):
            self._mark_unmeasured(slot)
            return
        here = local(tensor)
        if here is None:
            self._mark_unmeasured(slot)
            return
        if here is not tensor:
            self.into(slot, here)
            if is_partial(tensor) and slot not in self.bad:
                self._mark_unmeasured(slot)
            return
        try:
            if not tensor.is_cpu:
                if tensor.is_meta or (tensor.is_cuda and capturing()):  # add nothing to the script's CUDA graph
                    self._mark_unmeasured(slot)
                else:
                    self.later(slot, tensor)
                return
            if self.hints and slot < len(self.hints) and self.hints[slot] <= MIN_ACCURATE_NORM:
                value = remeasured_norm(tensor, 0.0)
                if value < _inf:
                    self.values[slot] = value
                    return
            if tensor.numel() > MAX_UNSPLIT_ELEMENTS and not self._sums and modes.is_plain(tensor):
                value = quick_norm_of_large(tensor)
            else:
                value = self._measure_quickly(tensor).item()
            self.values[slot] = value
            if not MIN_ACCURATE_NORM < value < _inf:
                self._remeasure(slot, tensor)
        except (RuntimeError, NotImplementedError, TypeError):
            self._measure_unusual(slot, tensor)
        except Exception:  # a subclass's code may raise anything
            if modes.is_plain(tensor):
                raise
            self._measure_unusual(slot, tensor)

    def later(self, slot: int, tensor: torch.Tensor) -> None:
        """Measure `tensor` on its device without waiting for the result."""
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        if tensor.is_cuda:
            self.streams.add(torch.cuda.current_stream(tensor.device))
        if self._sums:
            self._device_norms.append((slot, _norm(tensor, _inf), None))
        elif tensor.dtype is torch.float16:
            self._device_norms.append((slot, quick_norm(tensor), None))
        elif (
            tensor.numel() <= MAX_DOUBLE_ELEMENTS and tensor.dtype is not torch.float64 and tensor.device.type != "mps"
        ):
            self._device_norms.append((slot, _norm(tensor, dtype=torch.float64), None))
        else:
            self._device_norms.append((slot, quick_norm(tensor), _norm(tensor, _inf)))

    def _measure_unusual(self, slot: int, tensor: torch.Tensor) -> None:
        """Measure a tensor for which the quick way raised an error: a sparse one, or of another layout or dtype."""
        try:
            if not tensor.is_cpu and tensor.layout is torch.sparse_coo:
                self.later(slot, tensor.coalesce().values())
            elif not self._sums or tensor.layout is not torch.strided:
                self.values[slot] = exact_norm(tensor)
                self._remeasure(slot, tensor)
            else:
                self._mark_unmeasured(slot)
        except Exception as error:  # a subclass's code may raise anything
            if modes.is_plain(tensor) and not isinstance(error, (RuntimeError, TypeError, AttributeError)):
                raise
            self._mark_unmeasured(slot)

    def _mark_unmeasured(self, slot: int) -> None:
        """Make the value of `slot` ``nan``, and add the slot to ``unmeasured``."""
        self.values[slot] = math.nan
        self.unmeasured.add(slot)

    def _measure_batch(self, batch: tuple[list[torch.Tensor], list[int]]) -> None:
        """Measure a batch, its tensors and their slots, and empty it.

        Tensors that cannot be stacked are measured one by one.
        """
        tensors, slots = batch
        try:
            self._measure_stacked(tensors, slots)
        except (RuntimeError, NotImplementedError, TypeError):  # one is of another device, layout or class
            for slot, tensor in zip(slots, tensors, strict=True):
                self.into(slot, tensor)
        tensors.clear()
        slots.clear()

    def _measure_stacked(self, tensors: list[torch.Tensor], slots: Sequence[int]) -> None:
        """Measure tensors of one shape and dtype for `slots` with one call, as rows of one tensor. Unreliable norms are
        measured again, and non-finite tensors recorded.
        :raises RuntimeError: they cannot be stacked.
        """
        rows = torch.stack(tensors).flatten(1) if tensors[0].dim() else torch.stack(tensors).unsqueeze(1)
        half = torch.float32 if rows.dtype in _HALF else None
        if self._sums:
            found = rows.sum(1, dtype=half).tolist()
            odd = [at for at, value in enumerate(found) if value - value != 0.0]
        else:
            found, odd = self._row_norms(rows, slots, half)
            if odd:
                for at, value in zip(odd, remeasured_row_norms(rows, odd, [found[at] for at in odd]), strict=True):
                    found[at] = value
        values = self.values
        for slot, value in zip(slots, found, strict=True):
            values[slot] = value
        for at in odd:
            self._record_if_nonfinite(slots[at], tensors[at])

    def _row_norms(
        self, rows: torch.Tensor, slots: Sequence[int], half: torch.dtype | None
    ) -> tuple[list[float], list[int]]:
        """Return the norms of rows, and the indices of those that need a second look."""
        hints = self.hints
        tiny = {at for at, slot in enumerate(slots) if hints[slot] <= MIN_ACCURATE_NORM} if hints else ()
        if not tiny or not can_scale_rows(rows):
            found = _norm(rows, dim=1, dtype=half).tolist()
            return found, [at for at, value in enumerate(found) if not MIN_ACCURATE_NORM < value < _inf]
        found = scaled_row_norms(rows, tiny)
        odd = [
            at
            for at, value in enumerate(found)
            if not (value < _inf if at in tiny else MIN_ACCURATE_NORM < value < _inf)
        ]
        grown = [at for at in odd if at in tiny]
        if grown:
            for at, value in zip(grown, _norm(rows[grown], dim=1, dtype=half).tolist(), strict=True):
                found[at] = value
            odd = [at for at in odd if not MIN_ACCURATE_NORM < found[at] < _inf]
        return found, odd

    def alike(self, slots: Sequence[int], tensors: list[torch.Tensor], shape: object, dtype: object) -> int:
        """Measure `tensors` for existing slots, from the first on, as long as they match; return how many did.

        They match if they have the given shape and dtype, and can be stacked.
        """
        done = 0
        try:
            for t in tensors:
                if t.dtype is not dtype:
                    return 0
            while done < len(tensors):
                some = tensors[done : done + 4 * BATCH]
                if some[0].shape != shape or not _can_batch(some[0]):
                    break
                self._measure_stacked(some, slots[done : done + 4 * BATCH])
                done += len(some)
        except (RuntimeError, NotImplementedError, TypeError, AttributeError):  # one has no shape, or did not match
            pass
        return done

    def batch(self, slots: list[int], tensors: list[torch.Tensor]) -> None:
        """Measure `tensors`, all of one shape and dtype, for existing slots. Empties both lists."""
        if self._sums and not tensors[0].is_cpu and all(map(_can_batch_on_device, tensors)):
            # one operation per device
            if tensors[0].is_cuda:
                self.streams.update(torch.cuda.current_stream(device) for device in {t.device for t in tensors})
            self._device_norms += [
                (s, top, None) for s, top in zip(slots, torch._foreach_norm(tensors, _inf), strict=True)
            ]
        elif _can_batch(tensors[0]):
            for at in range(0, len(slots), 4 * BATCH):
                self._measure_batch((tensors[at : at + 4 * BATCH], slots[at : at + 4 * BATCH]))
        else:
            for slot, tensor in zip(slots, tensors, strict=True):
                self.into(slot, tensor)
        slots.clear()
        tensors.clear()

    def _remeasure(self, slot: int, tensor: torch.Tensor) -> None:
        """Measure a tensor again whose quick norm, or sum, is not reliable."""
        if not self._sums and not is_reliable(self.values[slot]):
            self.values[slot] = remeasured_norm(tensor, self.values[slot])
        self._record_if_nonfinite(slot, tensor)

    def _record_if_nonfinite(self, slot: int, tensor: object) -> None:
        """If the norm or sum in `slot` is NaN or Inf, record the tensor's bad values in `bad` and call `on_bad`.

        A sum that is not finite although every element is has overflowed, and is ignored. If elements are not counted
        (``brief``), or the tensor is gone, 1 stands for the number of NaN or of Inf.
        """
        value = self.values[slot]
        if value - value == 0.0:
            return
        found = None if self._brief or tensor is None else bad_values(tensor)
        if found is None:
            if self._sums and tensor is not None:  # the sum overflowed
                return
            found = BadValues(int(value != value), int(value == value), 0, ())
        self.bad[slot] = found
        if self._on_nonfinite is not None:
            self._on_nonfinite(slot, tensor, found)

    def flush(self) -> None:
        """Finish all pending measurements: afterwards every slot has its value."""
        self.flush_batches()
        if self._device_norms and capturing():
            self.mark_unread_as_unmeasured()
        elif self._device_norms:
            self.store_numbers(fetch(self.numbers(), self.streams))

    def mark_unread_as_unmeasured(self) -> None:
        """Mark all pending norms on accelerators as unmeasured: they cannot be read while a CUDA graph is captured."""
        for slot, *_ in self._device_norms:
            self._mark_unmeasured(slot)
        self._device_norms, self.streams = [], set()

    @property
    def has_unread_norms(self) -> bool:
        """Return whether there are norms on an accelerator that were not read yet."""
        return bool(self._device_norms)

    def numbers(self) -> list[torch.Tensor]:
        """Return the unread norms and largest elements, as tensors of no dimension."""
        return [number for _, *both in self._device_norms for number in both if number is not None]

    def store_numbers(self, numbers: Iterable[float]) -> None:
        """Store the norms from accelerators, given as the values of the tensors that ``numbers()`` returned."""
        coming, read = self._device_norms, iter(numbers)
        self._device_norms, self.streams = [], set()
        for slot, _, top in coming:
            value = next(read)
            if top is not None:
                greatest = next(read)
                if not 0.0 < greatest < _inf:
                    value = greatest
                elif not MIN_ACCURATE_NORM < value < _inf:
                    self._mark_unmeasured(slot)
                    continue
            self.values[slot] = value
            self._record_if_nonfinite(slot, None)  # the tensor is gone: its norm only tells NaN from Inf

    def flush_batches(self) -> None:
        """Measure the waiting batches, which releases their tensors."""
        for batch in self._batches.values():
            if batch and batch[0]:
                self._measure_batch(batch)

    def clear(self) -> None:
        """Forget all measurements; slots count from 0 again."""
        self.values, self.unmeasured, self.bad = [], set(), {}


def _can_batch(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` is a small plain float tensor on the CPU, which ``Norms`` measures together with
    others.
    """
    return bool(
        type(tensor) is torch.Tensor
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.dtype in FLOATS
        and 0 < tensor.numel() <= MAX_BATCHED_ELEMENTS
    )


def _can_batch_on_device(tensor: torch.Tensor) -> bool:
    """Return whether a tensor can be measured together with others on its accelerator."""
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_complex()
    return plain and tensor.numel() > 0 and not tensor.is_meta and not (tensor.is_cuda and capturing())


def flush_together(norms: Iterable[Norms], others: Sequence[object], later: Later) -> list[float]:
    """Flush all `norms` and return the values of `others`, tensors of no dimension, with a single wait.

    Returns nothing while the script captures a CUDA graph.
    """
    unread = []
    is_capturing = capturing()
    for one in norms:
        one.flush_batches()
        if is_capturing:
            one.mark_unread_as_unmeasured()
        elif one.has_unread_norms:
            unread.append((one, one.numbers()))
    if is_capturing:
        return []
    numbers = [number for _, some in unread for number in some]
    streams = {stream for one, _ in unread for stream in one.streams}
    values = later.fetch([*numbers, *others], streams)
    at = 0
    for one, some in unread:
        one.store_numbers(values[at : at + len(some)])
        at += len(some)
    return values[at:]


def joint_norm(tensors: Iterable[torch.Tensor]) -> float | None:
    """Return the joint 2-norm of the plain float tensors among `tensors`; ``None`` if it cannot be computed."""
    norms: list[float] = []
    device_norms: list[torch.Tensor] = []
    if modes.in_transform():
        return None
    with modes.disable_function_modes(), modes.hide_ops(), torch.no_grad():
        for tensor in tensors:
            if tensor.dtype not in FLOATS or tensor.layout is not torch.strided or tensor.is_meta:
                continue
            if is_partial(tensor) or (here := local(tensor)) is None:
                return None
            tensor = here
            if tensor.is_cuda and capturing():
                return None
            try:
                if tensor.is_cpu:
                    norms.append(norm(tensor.detach()))
                else:
                    device_norms.append(device_norm(tensor.detach()))
            except (RuntimeError, NotImplementedError):  # a tensor without values of its own
                return None
        norms += fetch(device_norms)
    return together(norms) if norms else None


def spread(items: Any, most: int) -> Any:
    """Return at most `most` items of a list or elements of a flat tensor, at even distances; a view of a tensor."""
    return items[:: max(1, -(-len(items) // most))]


def nonzero_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return which rows of a tensor of two dimensions or more, and of one element or more, have an element that is not
    zero. NaN is not zero.

    The largest magnitude of a row takes a seventh of the time of a comparison of each element.
    """
    return tensor.detach().abs().flatten(1).amax(1) != 0


def is_float(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` has a real or complex floating-point dtype that can be measured."""
    return tensor.dtype in FLOATS


def bad_values(tensor: object) -> BadValues | None:
    """Return the non-finite elements of `tensor`, or ``None`` if there are none. Slow: only for suspicious tensors."""
    if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    with torch.no_grad():
        try:
            here = local(tensor)
            if here is None:
                return None
            values = here.detach()
            if values.layout is not torch.strided:
                values = values.coalesce().values() if values.layout is torch.sparse_coo else values.values()
            wrong = ~torch.isfinite(values)
            if not bool(wrong.any()):
                return None
            nan = int(torch.isnan(values).sum())
            total = int(wrong.sum())
            first = tuple(tuple(int(i) for i in row) for row in wrong.nonzero()[:MAX_BAD_POSITIONS].tolist())
        except (RuntimeError, NotImplementedError):
            return None
    return BadValues(nan, total - nan, values.numel(), tuple(tensor.shape), first)


def shape_of(value: torch.Tensor) -> tuple[int, ...]:
    """Return the sizes of `value` as numbers: -1 for a symbolic size without a value.

    A single -1 if there is no shape.
    """
    try:
        return sizes(value.shape)
    except RuntimeError:
        return (-1,)


def sizes(shape: Iterable[int]) -> tuple[int, ...]:
    """Return a shape as numbers; -1 for a symbolic size without a value."""
    found: tuple[int, ...] = tuple(shape)
    for n in found:
        if type(n) is not int:
            return tuple(map(_size, found))
    return found


def _size(number: int | torch.SymInt) -> int:
    """Return one size of a shape as a number; -1 if it is symbolic and has no value."""
    try:
        return int(number)
    except Exception:  # a nested or data-dependent size: torch raises exceptions of several types
        return -1


def stat_of(name: str, tensor: torch.Tensor) -> TensorStat:
    """Return statistics of `tensor`: shape, dtype, non-finite values, and number of zeros (``None`` if it is not
    known).
    :param name: the name under which they are shown.
    """
    zeros = None
    with torch.no_grad():
        if tensor.layout is torch.strided and tensor.numel():
            try:
                here = local(tensor)
                zeros = int((here.detach() == 0).sum()) if here is not None and not is_partial(tensor) else None
            except (RuntimeError, NotImplementedError):
                zeros = None
    return TensorStat(name, shape_of(tensor), dtype_name(tensor.dtype), bad_values(tensor), zeros, not tensor.is_leaf)


def dtype_name(dtype: object) -> str:
    """Return a dtype as text without the prefix ``torch.``."""
    return str(dtype).removeprefix("torch.")
