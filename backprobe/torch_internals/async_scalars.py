"""Reads numbers from accelerators in batches: the only module that waits for a device.

Note [Nothing waits]: reading a number from an accelerator waits until the device has finished all work queued before.
So numbers stay on the device, and many come in one copy into pinned memory. In unrecorded steps nothing waits for the
copy: ``Later.add`` reads it when later numbers arrive. A recorded backward call fetches at most twice
(``Later.fetch``). Before it begins it fetches the norms of the forward, because the inputs of a bad result exist only
until then. When it is over it fetches the norms of its gradients, its loss, and everything added since the last fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from . import modes

#: The numbers that ``Later`` collects before it starts a copy.
MAX_PENDING_NUMBERS = 64


class Copy:
    """A copy of numbers to the CPU that is under way.

    :param numbers: vectors, or tensors of no dimension.
    :param streams: further streams that may still compute the numbers; the copy waits for them on the device.
    """

    def __init__(self, numbers: Sequence[torch.Tensor], streams: Iterable[Any] = ()) -> None:
        """Start to copy `numbers` to the CPU, without waiting."""
        #: Kept until the copy is complete: the allocator could otherwise give their memory to another stream.
        self._numbers = numbers
        self._sizes = [number.numel() for number in numbers]
        groups: dict[torch.device, dict[torch.dtype, list[int]]] = {}
        for at, number in enumerate(numbers):
            groups.setdefault(number.device, {}).setdefault(number.dtype, []).append(at)
        #: By device: the positions of its numbers in the order of the copy, the copy, and the event that ends it.
        self._parts: list[tuple[list[int], torch.Tensor, Any]] = []
        if not groups:
            return
        with torch.no_grad(), modes.disable_function_modes(), modes.hide_ops():
            for device, by_dtype in groups.items():
                current = torch.cuda.current_stream(device) if device.type == "cuda" else None
                for stream in streams:
                    if current is not None and stream.device == device and stream != current:
                        current.wait_stream(stream)
                wide = torch.float32 if device.type == "mps" else torch.float64
                rows = [_concatenated([numbers[at] for at in places]).to(wide) for places in by_dtype.values()]
                row = rows[0] if len(rows) == 1 else torch.cat(rows)
                copied = row.to("cpu", non_blocking=current is not None)  # to pinned memory
                event = torch.cuda.Event() if current is not None else None
                if event is not None:
                    event.record(current)  # type: ignore[no-untyped-call]
                self._parts.append(([at for places in by_dtype.values() for at in places], copied, event))

    @property
    def is_on_cpu(self) -> bool:
        """Return whether all numbers were on the CPU from the start, so that ``read`` does not wait."""
        return all(event is None for _, _, event in self._parts)

    @property
    def has_arrived(self) -> bool:
        """Return whether the copy is complete by now."""
        return all(event is None or bool(event.query()) for _, _, event in self._parts)

    def read(self) -> list[list[float]]:
        """Wait until the copy is complete, and return the numbers of each tensor."""
        found: list[list[float]] = [[] for _ in self._sizes]
        for places, copied, event in self._parts:
            if event is not None:
                event.synchronize()
            values, begin = copied.tolist(), 0
            for at in places:
                end = begin + self._sizes[at]
                found[at], begin = values[begin:end], end
        self._numbers, self._parts = (), []
        return found


def _concatenated(numbers: list[torch.Tensor]) -> torch.Tensor:
    """Concatenate tensors of one device and dtype."""
    if all(not number.dim() for number in numbers):
        return torch.stack(numbers)
    return torch.cat([number.reshape(-1) for number in numbers])


def fetch(numbers: Sequence[torch.Tensor], streams: Iterable[object] = ()) -> list[float]:
    """Return the values of tensors of no dimension, with one wait for each device. `streams`: see ``Copy``."""
    return [value for (value,) in Copy(numbers, streams).read()] if numbers else []


def capturing() -> bool:
    """Return whether the script is capturing a CUDA graph: until that is over no number can be copied or waited for."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


class Later:
    """Numbers that wait on accelerators, each with the callback that receives it."""

    def __init__(self) -> None:
        """Begin without numbers."""
        self._pending: list[tuple[torch.Tensor, Callable[[list[float]], None]]] = []
        #: The copy that is under way, and the callbacks of its numbers.
        self._copy_under_way: tuple[Copy, list[Callable[[list[float]], None]]] | None = None

    def add(self, number: torch.Tensor, callback: Callable[[float], None]) -> None:
        """Call `callback` with the value of `number` once it is read; callbacks run in the order of their numbers."""
        self.add_all(number, lambda values: callback(values[0]))

    def add_all(self, numbers: torch.Tensor, callback: Callable[[list[float]], None]) -> None:
        """Call `callback` with the values of a vector once they are read."""
        self._pending.append((numbers.detach(), callback))
        if len(self._pending) >= MAX_PENDING_NUMBERS and not capturing() and self._may_start_copy():
            self._finish_copy()
            self._start_copy()

    def _may_start_copy(self) -> bool:
        """Return whether the next copy may start now, possibly after waiting for the one under way."""
        # Wait for a copy that is still under way once as many numbers again are pending: this bounds the memory.
        return (
            self._copy_under_way is None
            or len(self._pending) >= 2 * MAX_PENDING_NUMBERS
            or self._copy_under_way[0].has_arrived
        )

    def fetch(self, numbers: Sequence[torch.Tensor], streams: Iterable[object] = ()) -> list[float]:
        """Return the values of tensors of no dimension now.

        Pending numbers come in the same copy; their callbacks run first.
        """
        if not numbers:
            return []
        waiting, self._pending = self._pending, []
        copy = Copy([*(number for number, _ in waiting), *numbers], streams)
        self._finish_copy()
        values = copy.read()
        for (_, callback), numbers_read in zip(waiting, values, strict=False):
            callback(numbers_read)
        return [value for (value,) in values[len(waiting) :]]

    def flush(self) -> None:
        """Read all pending numbers now; do nothing while a CUDA graph is captured."""
        while (self._pending or self._copy_under_way is not None) and not capturing():
            self._finish_copy()
            self._start_copy()

    def _finish_copy(self) -> None:
        """Wait for the copy under way, if there is one, and pass its numbers to their callbacks."""
        if self._copy_under_way is None:
            return
        (copy, callbacks), self._copy_under_way = self._copy_under_way, None
        for callback, values in zip(callbacks, copy.read(), strict=True):
            callback(values)

    def _start_copy(self) -> None:
        """Begin to copy the pending numbers, unless a copy is under way."""
        if not self._pending or self._copy_under_way is not None:
            return
        waiting, self._pending = self._pending, []
        self._copy_under_way = Copy([numbers for numbers, _ in waiting]), [callback for _, callback in waiting]
