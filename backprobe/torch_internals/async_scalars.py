"""Numbers that an accelerator works out and that are read together: the only place that waits for one.

Note [Nothing waits]: to read a number of an accelerator is to wait until it has done all that it was told before. So
numbers stay there, and come many in one copy into pinned memory. Of steps that are not recorded nobody waits for the
copy: it is looked at when the next numbers come (``Later.add``). A backward call that is recorded fetches twice at most
(``Later.fetch``): before it begins what was measured of the forward, as what a bad result was made of is there only
then; when it is over the norms of its gradients, its loss, and all that has waited since the last fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from . import modes

#: Numbers that are fetched at once.
MOST = 64


class Copy:
    """Numbers on their way from where they were worked out: vectors, or tensors of no dimension.

    :param streams: of accelerators, on which the numbers may have been worked out, besides the current ones.
    """

    def __init__(self, numbers: Sequence[torch.Tensor], streams: Iterable[Any] = ()) -> None:
        #: Held until they have come: another stream may be given their memory.
        self._numbers = numbers
        self._sizes = [number.numel() for number in numbers]
        groups: dict[Any, dict[Any, list[int]]] = {}
        for at, number in enumerate(numbers):
            groups.setdefault(number.device, {}).setdefault(number.dtype, []).append(at)
        #: By device: the places of its numbers in the order in which they come, the numbers, and what says that they
        #: are there.
        self._coming: list[tuple[list[int], torch.Tensor, Any]] = []
        if not groups:
            return
        with torch.no_grad(), modes.unseen(), modes.unnoticed():
            for device, by_dtype in groups.items():
                current = torch.cuda.current_stream(device) if device.type == "cuda" else None
                for stream in streams:
                    if current is not None and stream.device == device and stream != current:
                        current.wait_stream(stream)
                wide = torch.float32 if device.type == "mps" else torch.float64
                rows = [_joined([numbers[at] for at in places]).to(wide) for places in by_dtype.values()]
                row = rows[0] if len(rows) == 1 else torch.cat(rows)
                copied = row.to("cpu", non_blocking=current is not None)  # which pins the memory that it goes to
                event = torch.cuda.Event() if current is not None else None
                if event is not None:
                    event.record(current)  # type: ignore[no-untyped-call]
                self._coming.append(([at for places in by_dtype.values() for at in places], copied, event))

    @property
    def is_here(self) -> bool:
        """Whether no accelerator has anything to do with it."""
        return all(event is None for _, _, event in self._coming)

    @property
    def is_there(self) -> bool:
        return all(event is None or bool(event.query()) for _, _, event in self._coming)

    def read(self) -> list[list[float]]:
        """The numbers of each tensor. Waits for them."""
        found: list[list[float]] = [[] for _ in self._sizes]
        for places, copied, event in self._coming:
            if event is not None:
                event.synchronize()
            values, begin = copied.tolist(), 0
            for at in places:
                end = begin + self._sizes[at]
                found[at], begin = values[begin:end], end
        self._numbers, self._coming = (), []
        return found


def _joined(numbers: list[torch.Tensor]) -> torch.Tensor:
    """Tensors of one device and dtype as a vector."""
    if all(not number.dim() for number in numbers):
        return torch.stack(numbers)
    return torch.cat([number.reshape(-1) for number in numbers])


def fetch(numbers: Sequence[torch.Tensor], streams: Iterable[Any] = ()) -> list[float]:
    """What tensors of no dimension hold, with one wait for each device. `streams`: see ``Copy``."""
    return [value for (value,) in Copy(numbers, streams).read()] if numbers else []


def capturing() -> bool:
    """Whether the script is capturing a CUDA graph: no number can be waited for, or sent, until it is captured."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


class Later:
    """Numbers that wait on an accelerator, and who wants to know them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[torch.Tensor, Callable[[list[float]], None]]] = []
        #: What comes, and who wants to know each.
        self._coming: tuple[Copy, list[Callable[[list[float]], None]]] | None = None

    def add(self, number: torch.Tensor, tell: Callable[[float], None]) -> None:
        """`tell` is called with the value of `number`, in the order in which they were added."""
        self.add_all(number, lambda values: tell(values[0]))

    def add_all(self, numbers: torch.Tensor, tell: Callable[[list[float]], None]) -> None:
        """`tell` is called with the values of a vector, in its turn."""
        self._waiting.append((numbers.detach(), tell))
        if len(self._waiting) >= MOST and not capturing() and self._may_send():
            self._arrive()
            self._send()

    def _may_send(self) -> bool:
        # One that is behind by as much again is waited for: memory has a bound.
        return self._coming is None or len(self._waiting) >= 2 * MOST or self._coming[0].is_there

    def fetch(self, numbers: Sequence[torch.Tensor], streams: Iterable[Any] = ()) -> list[float]:
        """What tensors of no dimension hold, now. What waits comes in the same copy, and is told first."""
        if not numbers:
            return []
        waiting, self._waiting = self._waiting, []
        copy = Copy([*(number for number, _ in waiting), *numbers], streams)
        self._arrive()
        values = copy.read()
        for (_, tell), told in zip(waiting, values, strict=False):
            tell(told)
        return [value for (value,) in values[len(waiting) :]]

    def flush(self) -> None:
        """All of them, now; while a graph is captured, later."""
        while (self._waiting or self._coming is not None) and not capturing():
            self._arrive()
            self._send()

    def _arrive(self) -> None:
        if self._coming is None:
            return
        (copy, tells), self._coming = self._coming, None
        for tell, values in zip(tells, copy.read(), strict=True):
            tell(values)

    def _send(self) -> None:
        if not self._waiting or self._coming is not None:
            return
        waiting, self._waiting = self._waiting, []
        self._coming = Copy([numbers for numbers, _ in waiting]), [tell for _, tell in waiting]
