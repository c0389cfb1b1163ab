"""Numbers that an accelerator works out and that are read later, many in one copy.

Note [Nothing waits]: to read a number of an accelerator is to wait until it has done all that it was told before. So
they stay there until there are some, and come in one copy that is not waited for either: it is looked at when the next
ones come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import modes

#: Numbers that are fetched at once.
MOST = 64


class Later:
    """Tensors of one number each, and who wants to know them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[torch.Tensor, Callable[[float], None]]] = []
        #: What comes: the numbers, what says that they are there, and who wants to know each.
        self._coming: tuple[torch.Tensor, Any, list[Callable[[float], None]]] | None = None

    def add(self, number: torch.Tensor, tell: Callable[[float], None]) -> None:
        """`tell` is called with the value of `number`, in the order in which they were added."""
        self._waiting.append((number.detach(), tell))
        if len(self._waiting) >= MOST:
            self._arrive(self._is_there())
            self._fetch()

    def flush(self) -> None:
        """All of them, now."""
        while self._waiting or self._coming is not None:
            self._arrive(True)
            self._fetch()

    def _is_there(self) -> bool:
        # One that is behind by as much again is waited for: memory has a bound.
        late = len(self._waiting) >= 2 * MOST
        return late or self._coming is None or self._coming[1] is None or self._coming[1].query()

    def _arrive(self, now: bool) -> None:
        if self._coming is None or not now:
            return
        (numbers, event, tells), self._coming = self._coming, None
        if event is not None:
            event.synchronize()
        for tell, value in zip(tells, numbers.tolist(), strict=True):
            tell(value)

    def _fetch(self) -> None:
        if not self._waiting or self._coming is not None:
            return
        waiting, self._waiting = self._waiting, []
        home = waiting[0][0].device
        first = next((i for i, (number, _) in enumerate(waiting) if number.device != home), len(waiting))
        waiting, self._waiting = waiting[:first], waiting[first:]  # those of another accelerator come next
        with torch.no_grad(), modes.unseen(), modes.unnoticed():
            numbers = torch.stack([number.reshape(()).float() for number, _ in waiting])
            cuda = numbers.is_cuda
            copied = numbers.to("cpu", non_blocking=cuda)
        event = torch.cuda.Event() if cuda else None
        if event is not None:
            event.record(torch.cuda.current_stream(numbers.device))  # type: ignore[no-untyped-call]
        self._coming = copied, event, [tell for _, tell in waiting]
