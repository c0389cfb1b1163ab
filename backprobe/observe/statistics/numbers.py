"""Numbers that stay where they were worked out, and are read together.

Note [One read a device]: to read a number of an accelerator is to wait for it. What is measured of a step stays there,
is put into one tensor a device and copied without waiting; it is read when the next step is looked at. What can follow
from the numbers themselves, a quotient or a root, is worked out when they are read (``then``): an
operation on a tensor of one number costs as much as a pass over a small layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...torch_internals.async_scalars import Copy
from ...torch_internals.measure import FLOATS

#: By what is measured, and what of: ``found["weight_norm"]["fc.weight"]``.
Found = dict[str, dict[str, float]]
#: Elements of a parameter of which shares are taken, and of which an update is: evenly spaced ones where it has more.
FEW, MANY = 1 << 10, 1 << 12
#: Looks from one at stable ranks and greatest elements to the next.
SELDOM = 10
HALF = (torch.float16, torch.bfloat16)
_REAL = frozenset(dtype for dtype in FLOATS if not dtype.is_complex)


class Numbers:
    """Of one step."""

    def __init__(self) -> None:
        #: By device: quantities and names, the numbers they follow from, and how.
        self._here: dict[Any, list[tuple[str, Sequence[str], tuple[Any, ...], Any]]] = {}
        self._known: Found = {}
        self._coming: list[tuple[Any, Copy]] = []
        #: Elements of the parameters that were measured, by name.
        self.sizes: dict[str, int] = {}
        #: By id of a linear or convolution weight, from how many elements each of its outputs is summed; by name, of
        #: those that were measured.
        self.sums: dict[int, int] = {}
        self.fan_in: dict[str, int] = {}

    def know(self, quantity: str, values: Mapping[str, float]) -> None:
        """By name what is a number already."""
        self._known.setdefault(quantity, {}).update(values)

    def add(
        self,
        quantity: str,
        names: Sequence[str],
        *numbers: Any,
        then: Callable[..., Sequence[float]] | None = None,
    ) -> None:
        """Of each of `names` a number, all on one device.

        :param numbers: each a vector, or tensors of one number each.
        :param then: is given them as lists when they are read, and gives what is told instead.
        """
        if names:
            first = numbers[0] if isinstance(numbers[0], torch.Tensor) else numbers[0][0]
            self._here.setdefault(first.device, []).append((quantity, names, numbers, then))

    def send(self) -> None:
        """Nothing more comes: begin to copy."""
        for parts in self._here.values():
            rows = [row for _, _, numbers, _ in parts for row in numbers]
            rows = [row if isinstance(row, torch.Tensor) else torch.stack(list(row)) for row in rows]
            self._coming.append((parts, Copy(rows)))
        self._here.clear()

    @property
    def there(self) -> bool:
        """Whether nothing has to be waited for."""
        return all(copy.is_here for _, copy in self._coming)

    def read(self) -> Found:
        """All of them. Waits for what has not come yet."""
        for parts, copy in self._coming:
            lists, at = copy.read(), 0
            for quantity, names, numbers, then in parts:
                mine = lists[at : at + len(numbers)]
                at += len(numbers)
                told = mine[0] if then is None else then(*mine)
                self._known.setdefault(quantity, {}).update(zip(names, told, strict=True))
        self._coming.clear()
        return self._known


def usable(tensor: Any) -> bool:
    """Whether it is a plain dense tensor of real floats with elements."""
    return tensor.dtype in _REAL and tensor.layout is torch.strided and not tensor.is_meta and bool(tensor.numel())


def norms(tensors: Sequence[Any]) -> list[Any]:
    """2-norms of tensors of one device and dtype, added up in single precision at least."""
    wide = torch.float32 if tensors[0].dtype in HALF else None
    return list(torch._foreach_norm(list(tensors), 2, wide))


def extremes(tensor: Any) -> tuple[Any, ...]:
    """What ``greatest`` takes the greatest absolute value from."""
    if tensor.is_cpu:  # the norm that says so takes ten times as long there
        return tuple(torch.aminmax(tensor))
    return (torch.linalg.vector_norm(tensor, torch.inf),)


def greatest(*lists: Sequence[float]) -> Sequence[float]:
    """The greatest absolute values; NaN where there is one."""
    return [max(-low, high) for low, high in zip(*lists, strict=True)] if len(lists) > 1 else lists[0]


def rows(tensors: Sequence[Any], *most: int) -> list[Any]:
    """Of tensors with as many elements so many of each at most, evenly spaced, as vectors; views where that can be. Of
    several numbers each is taken of what the one before it left. Strides are odd: columns of a matrix all have their
    turn. No graph is made: see ``measuring``."""
    count, apart = tensors[0].numel(), 1
    for limit in most:
        step = every(count, limit)
        count, apart = -(-count // step), apart * step
    size, stride = (count,), (apart,)
    return [(t if t.is_contiguous() else t.reshape(-1)).as_strided(size, stride) for t in tensors]


def every(count: int, most: int) -> int:
    """How far apart the elements are of which at most `most` are taken of `count`."""
    return 1 if count <= most else -(-count // most) | 1


def wide(tensor: Any) -> Any:
    return tensor.float() if tensor.dtype in HALF else tensor


def zeros(vectors: Sequence[Any]) -> Any:
    """How many elements of each are zero: a vector. Of vectors of one device."""
    sizes = [vector.numel() for vector in vectors]
    if len(set(sizes)) == 1:
        return (torch.stack(list(vectors)) == 0).sum(1)
    there = (torch.cat(list(vectors)) == 0).float()
    return torch.stack(torch._foreach_norm(list(there.split(sizes)))).square().round()
