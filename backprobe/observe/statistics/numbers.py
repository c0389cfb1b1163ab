"""Numbers that stay on their device and are read together.

Note [One read a device]: reading a number from an accelerator waits for the accelerator. So the numbers of a measured
step stay on their device, are concatenated into one tensor per device and copied asynchronously; they are read in the
next measured step. Quantities that can be computed from the numbers themselves, such as quotients and square roots, are
computed on the host after reading (``convert``): an operation on a tensor of one element costs as much as a pass over a
small layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...torch_internals import private
from ...torch_internals.async_scalars import Copy
from ...torch_internals.measure import FLOATS
from ...torch_internals.references import IdentityMap

#: Values by quantity and name: ``found["weight_norm"]["fc.weight"]``.
Found = dict[str, dict[str, float]]
#: Target number of sampled elements of a parameter, evenly spaced: for fractions of elements, and for updates.
FRACTION_SAMPLES, UPDATE_SAMPLES = 1 << 10, 1 << 12
#: Interval, in measurements, between two measurements of stable ranks and largest elements.
COSTLY_INTERVAL = 10
HALF_DTYPES = (torch.float16, torch.bfloat16)
_REAL_DTYPES = frozenset(dtype for dtype in FLOATS if not dtype.is_complex)


class Numbers:
    """The numbers of one step."""

    def __init__(self) -> None:
        """Start without numbers."""
        #: By device: quantity, names, the tensors to read, and the function that computes the values from them.
        self._on_device: dict[
            torch.device, list[tuple[str, Sequence[str], tuple[Sequence[torch.Tensor] | torch.Tensor, ...], object]]
        ] = {}
        self._known: Found = {}
        self._copies: list[tuple[Any, Copy]] = []
        #: Number of elements of each measured parameter, by name.
        self.sizes: dict[str, int] = {}
        #: Number of elements that each output of a linear or convolution layer sums over: by weight, and by name for
        #: the measured weights.
        self.sums: IdentityMap[int] = IdentityMap(private.tensor_ref)
        self.fan_in: dict[str, int] = {}

    def add_known(self, quantity: str, values: Mapping[str, float]) -> None:
        """Add values by name that are already on the host."""
        self._known.setdefault(quantity, {}).update(values)

    def add(
        self,
        quantity: str,
        names: Sequence[str],
        *numbers: Sequence[torch.Tensor] | torch.Tensor,
        convert: Callable[..., Sequence[float]] | None = None,
    ) -> None:
        """Add one number for each of `names`. All numbers are on one device.

        :param numbers: each a vector with one element per name, or a sequence of tensors with one element each.
        :param convert: receives `numbers` as lists when they are read, and returns the values to store instead.
        """
        if names:
            first = numbers[0] if isinstance(numbers[0], torch.Tensor) else numbers[0][0]
            self._on_device.setdefault(first.device, []).append((quantity, names, numbers, convert))

    def send(self) -> None:
        """Begin to copy all numbers to the host. Call it after the last one was added."""
        for parts in self._on_device.values():
            sample_rows = [row for _, _, numbers, _ in parts for row in numbers]
            sample_rows = [row if isinstance(row, torch.Tensor) else torch.stack(list(row)) for row in sample_rows]
            self._copies.append((parts, Copy(sample_rows)))
        self._on_device.clear()

    @property
    def all_on_host(self) -> bool:
        """Return whether all numbers were on the host from the start, so that ``read`` does not wait."""
        return all(copy.is_on_cpu for _, copy in self._copies)

    def read(self) -> Found:
        """Return all values. Waits for copies that have not arrived."""
        for parts, copy in self._copies:
            lists, at = copy.read(), 0
            for quantity, names, numbers, convert in parts:
                mine = lists[at : at + len(numbers)]
                at += len(numbers)
                results = mine[0] if convert is None else convert(*mine)
                self._known.setdefault(quantity, {}).update(zip(names, results, strict=True))
        self._copies.clear()
        return self._known


def is_measurable(tensor: Any) -> bool:
    """Return whether `tensor` is a dense tensor of real floats with at least one element."""
    return (
        tensor.dtype in _REAL_DTYPES and tensor.layout is torch.strided and not tensor.is_meta and bool(tensor.numel())
    )


def norms(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the 2-norms of tensors of one device and dtype. Half precision is accumulated in float32."""
    upcast = torch.float32 if tensors[0].dtype in HALF_DTYPES else None
    return list(torch._foreach_norm(list(tensors), 2, upcast))


def extremes(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors from which ``max_abs`` computes the largest absolute value of `tensor`."""
    if tensor.is_cpu:  # ``vector_norm`` takes ten times as long on the CPU
        return tuple(torch.aminmax(tensor))
    return (torch.linalg.vector_norm(tensor, torch.inf),)


def max_abs(*lists: Sequence[float]) -> Sequence[float]:
    """Return the largest absolute values from the results of ``extremes``; NaN if a tensor contains NaN."""
    return [max(-low, high) for low, high in zip(*lists, strict=True)] if len(lists) > 1 else lists[0]


def sample_rows(tensors: Sequence[torch.Tensor], *most: int) -> list[torch.Tensor]:
    """Return vectors of evenly spaced elements of tensors that all have the same number of elements.

    Returns views where possible. If several limits are given, each selects from the elements that the previous limit
    left. Spacings are odd, so that samples cover all columns of a matrix. Call it with gradient mode off: see
    ``measuring``.

    :param most: the approximate maximum number of elements.
    """
    count, spacing = tensors[0].numel(), 1
    for limit in most:
        step = sample_spacing(count, limit)
        count, spacing = -(-count // step), spacing * step
    size, stride = (count,), (spacing,)
    return [(t if t.is_contiguous() else t.reshape(-1)).as_strided(size, stride) for t in tensors]


def sample_spacing(count: int, most: int) -> int:
    """Return the spacing that selects at most about `most` of `count` elements."""
    return 1 if count <= most else -(-count // most) | 1


def upcast(tensor: torch.Tensor) -> torch.Tensor:
    """Return a half-precision tensor in single precision, and any other tensor as it is."""
    return tensor.float() if tensor.dtype in HALF_DTYPES else tensor


def count_zeros(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a tensor with the number of zeros in each of `vectors`, which are on one device."""
    sizes = [vector.numel() for vector in vectors]
    if len(set(sizes)) == 1:
        return (torch.stack(list(vectors)) == 0).sum(1)
    is_zero = (torch.cat(list(vectors)) == 0).float()
    return torch.stack(torch._foreach_norm(list(is_zero.split(sizes)))).square().round()
