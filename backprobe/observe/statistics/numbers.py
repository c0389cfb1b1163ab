"""Numbers that stay where they were worked out, and are read together.

Note [One read a device]: to read a number of an accelerator is to wait for it. What is measured of a step stays there,
is stacked into one tensor a device and copied without waiting; it is read when the next step is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...torchside.measure import FLOATS

#: What is measured, and what of: ``("weight_norm", "fc.weight")``.
Key = tuple[str, str]
#: Elements of a parameter of which shares are taken, and of which an update is: evenly spaced ones where it has more.
FEW, MANY = 1 << 11, 1 << 14
HALF = (torch.float16, torch.bfloat16)


class Numbers:
    """Of one step."""

    def __init__(self) -> None:
        #: By device: keys and tensors of one number each.
        self._here: dict[Any, tuple[list[Key], list[Any]]] = {}
        self._known: dict[Key, float] = {}
        self._coming: list[tuple[list[Key], Any]] = []
        self._events: list[Any] = []
        #: Elements of the parameters that were measured, by name.
        self.sizes: dict[str, int] = {}
        #: By id of a linear or convolution weight, from how many elements each of its outputs is summed; by name, of
        #: those that were measured.
        self.sums: dict[int, int] = {}
        self.fan_in: dict[str, int] = {}

    def know(self, key: Key, value: float) -> None:
        """`value` is a number already."""
        self._known[key] = value

    def add(self, quantity: str, names: Sequence[str], numbers: Sequence[Any]) -> None:
        """Tensors of one number each, on one device."""
        if len(numbers):
            keys, tensors = self._here.setdefault(numbers[0].device, ([], []))
            keys += [(quantity, name) for name in names]
            tensors += numbers

    def send(self) -> None:
        """Nothing more comes: begin to copy."""
        for keys, tensors in self._here.values():
            stacked = torch.stack([t.to(torch.float64 if t.is_cpu else torch.float32) for t in tensors])
            self._coming.append((keys, stacked.to("cpu", non_blocking=stacked.is_cuda)))
            if stacked.is_cuda:
                event = torch.cuda.Event()
                event.record(torch.cuda.current_stream(stacked.device))  # type: ignore[no-untyped-call]
                self._events.append(event)
        self._here.clear()

    @property
    def there(self) -> bool:
        """Whether nothing has to be waited for."""
        return not self._events

    def read(self) -> dict[Key, float]:
        """All of them. Waits for what has not come yet."""
        for event in self._events:
            event.synchronize()
        for keys, numbers in self._coming:
            self._known.update(zip(keys, numbers.tolist(), strict=True))
        self._coming.clear()
        return self._known


def usable(tensor: Any) -> bool:
    """Whether it is a plain dense tensor of real floats with elements."""
    return (
        tensor.layout is torch.strided
        and tensor.dtype in FLOATS
        and not tensor.is_complex()
        and not tensor.is_meta
        and bool(tensor.numel())
    )


def norms(tensors: Sequence[Any]) -> list[Any]:
    """2-norms of tensors of one device and dtype, added up in single precision at least."""
    wide = torch.float32 if tensors[0].dtype in HALF else None
    return list(torch._foreach_norm(list(tensors), 2, wide))


def greatest(tensors: Sequence[Any]) -> list[Any]:
    """The greatest absolute values; NaN where there is one."""
    if not tensors[0].is_cpu:
        return list(torch._foreach_norm(list(tensors), float("inf")))
    found = []
    for t in tensors:  # on the CPU the norm that says so takes ten times as long
        low, high = torch.aminmax(t)
        found.append(torch.maximum(-low, high))
    return found


def some(tensor: Any, most: int) -> Any:
    """`most` elements at most, evenly spaced, as a vector; a view where that can be. The stride is odd: columns of a
    matrix all have their turn."""
    flat = tensor.detach().reshape(-1)
    return flat if flat.numel() <= most else flat[:: -(-flat.numel() // most) | 1]


def wide(tensor: Any) -> Any:
    return tensor.float() if tensor.dtype in HALF else tensor
