"""Samples the norms of weights, gradients and updates in some of the steps.

Note [Sampling updates]: norms of weights and updates are not free, and an update needs a copy. They are taken in the
first steps, and then as often as a hundredth of the run's time allows, or a tenth of the budget; the size of the copies
is bounded. Norms of tensors on an accelerator stay there: the caller fetches them together with other numbers
(Note [Nothing waits]).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...records import ParameterStat, Step
from ...torch_internals import private
from ...torch_internals.async_scalars import capturing
from ...torch_internals.measure import is_float
from ...torch_internals.norms import holds, norm
from ..forward.naming import Naming

#: The most bytes of weights copied at once to compute updates.
MAX_COPY_BYTES = 64 << 20
_clock = time.perf_counter
#: Positions of the norms in the values of a parameter.
WEIGHT, GRAD, UPDATE = range(3)


@dataclass(frozen=True)
class AcceleratorNorms:
    """Norms that stay on an accelerator.

    :ivar numbers: a vector: the norms, then the largest absolute elements of the same tensors if `tops`.
    :ivar names: the names of the parameters.
    :ivar which: ``WEIGHT``, ``GRAD`` or ``UPDATE``.
    """

    numbers: torch.Tensor
    names: Sequence[str]
    which: int
    tops: bool

    def values(self, read: Sequence[float]) -> list[float | None]:
        """Return the norms; ``None`` for a norm that is out of the range of its precision."""
        count = len(self.names)
        if not self.tops:
            return list(read)
        pairs = zip(read[:count], read[count:], strict=True)
        return [top if not 0.0 < top < math.inf else value if holds(value) else None for value, top in pairs]

    def put(self, step: Step, read: Sequence[float]) -> Step:
        """Return `step` with the norms, now that they are known."""
        return replace(step, parameters=filled(step.parameters, self, read))


@dataclass
class AcceleratorClipNorm:
    """The ``clip_norm`` of a step, which stays on an accelerator.

    :ivar numbers: a vector of the one number.
    """

    numbers: torch.Tensor

    def put(self, step: Step, read: Sequence[float]) -> Step:
        """Return `step` with the norm, now that it is known."""
        return replace(step, clip_norm=read[0])


def filled(
    parameters: Sequence[ParameterStat], away: AcceleratorNorms, read: Sequence[float]
) -> tuple[ParameterStat, ...]:
    """Return `parameters` with the norms that were `away`, now that they are known (`read`)."""
    known = dict(zip(away.names, away.values(read), strict=True))
    found = []
    for one in parameters:
        values = [one.weight, one.grad, one.update]
        values[away.which] = known.get(one.name, values[away.which])
        found.append(ParameterStat(one.name, *values))
    return tuple(found)


class Samples:
    """Sampler of the norms of the parameters that optimizers step.

    :param share: the budget, as a share of the script's own time; ``None``: no bound.
    """

    def __init__(self, names: Naming, share: float | None = None) -> None:
        self._names, self._share = names, 0.01 if share is None else min(0.01, 0.1 * share)
        self._stats: dict[str, list[float | None]] = {}
        self._copies: list[tuple[str, Any, Any]] = []
        self._away: list[AcceleratorNorms] = []
        self._rotate = 0
        #: When sampling began, and the seconds that it has taken.
        self._begin, self._spent = _clock(), 0.0

    def due(self, first: bool) -> bool:
        """Return whether a sample is due. `first`: this is one of the first steps."""
        return first or self._spent < self._share * (_clock() - self._begin)

    def before(self, parameters: list[torch.Tensor], away: bool = True) -> None:
        """Sample `parameters` before an optimizer steps them. `away`: measure those on an accelerator too."""
        begin = _clock()
        named = [(self._names.of(p), p) for p in parameters if isinstance(p, torch.Tensor) and (away or p.is_cpu)]
        if private.in_mode():  # the user's mode must not see our computations (Note [Unseen by the user's modes])
            named = [(name, p) for name, p in named if private.is_plain(p) and private.is_plain(p.grad)]
        with torch.no_grad(), private.unnoticed():
            names = [name for name, _ in named]
            weights = self._norms(names, [p for _, p in named], WEIGHT)
            grads = self._norms(names, [p.grad for _, p in named], GRAD)
            for name, w, g in zip(names, weights, grads, strict=True):
                self._stats[name] = [w, g, None]
            self._copy(named)
        self._spent += _clock() - begin

    def _copy(self, named: list[tuple[str, Any]]) -> None:
        """Copy as many weights as the bound allows, beginning where the last sample ended."""
        used = 0
        count = len(named)
        for at in range(count):
            name, p = named[(self._rotate + at) % count]
            size = p.numel() * p.element_size()
            if used + size > MAX_COPY_BYTES and used:
                self._rotate = (self._rotate + at) % count
                break
            if p.grad is None or p.layout is not torch.strided or size > MAX_COPY_BYTES:
                continue
            used += size
            here = private.local(p)
            if here is not None:
                self._copies.append((name, p, here.detach().clone()))

    def after(self) -> None:
        """Measure the updates after the optimizer has stepped."""
        if not self._copies:
            return
        begin = _clock()
        with torch.no_grad(), private.unnoticed():
            differences = [_difference(private.local(p).detach(), old) for _, p, old in self._copies]
            names = [name for name, _, _ in self._copies]
            for name, value in zip(names, self._norms(names, differences, UPDATE), strict=True):
                if name in self._stats:
                    self._stats[name][UPDATE] = value
        self._copies.clear()
        self._spent += _clock() - begin

    def forget(self) -> None:
        """Drop the copies: the optimizer will not step."""
        self._copies.clear()

    def take(self) -> tuple[tuple[ParameterStat, ...], list[AcceleratorNorms]]:
        """Return and reset the norms of the finished step, and its norms that stay on an accelerator."""
        taken, self._stats = self._stats, {}
        away, self._away = self._away, []
        return tuple(ParameterStat(name, *values) for name, values in taken.items()), away

    def _norms(self, names: Sequence[str], tensors: list[torch.Tensor], which: int) -> list[float | None]:
        found, away = norms(names, tensors, which)
        self._away += away
        return found


def _difference(new: Any, old: Any) -> torch.Tensor:
    """Return `new` minus `old`, reusing the memory of `old`.

    In half precision the difference is computed in float32.
    """
    return new.float() - old if old.dtype in (torch.float16, torch.bfloat16) else old.neg_().add_(new)


def norms(
    names: Sequence[str], tensors: Sequence[torch.Tensor], which: int
) -> tuple[list[float | None], list[AcceleratorNorms]]:
    """Return the 2-norms of tensors on the CPU, and those that stay on accelerators.

    The first list has ``None`` for the latter, and for anything that is not a dense floating-point tensor. For a
    distributed tensor only the local part counts: Note [No own collectives].
    """
    here: list[Any] = [None if t is None or private.is_partial(t) else private.local(t) for t in tensors]
    out: list[float | None] = [None] * len(here)
    groups: dict[Any, list[int]] = {}
    for i, t in enumerate(here):
        if t is None or t.layout is not torch.strided or not is_float(t) or t.is_meta:
            continue
        if t.is_cpu:
            out[i] = _norm(t)
        elif not t.numel():
            out[i] = 0.0
        elif not (t.is_cuda and capturing()):
            groups.setdefault((t.device, t.dtype, type(t)), []).append(i)
    away = []
    for (device, dtype, _), places in groups.items():
        some = [here[i].detach() for i in places]
        exact = device.type != "mps" and not dtype.is_complex and dtype is not torch.float64
        try:
            vectors = torch._foreach_norm(some, 2, torch.float64 if exact else None)
            vectors += () if exact else torch._foreach_norm(some, math.inf)
            numbers = torch.stack(list(vectors))
        except (RuntimeError, NotImplementedError, TypeError):  # a subclass (quantised) that has no norm
            continue
        away.append(AcceleratorNorms(numbers, [names[i] for i in places], which, not exact))
    return out, away


def _norm(tensor: torch.Tensor) -> float | None:
    try:
        return norm(tensor.detach())
    except (RuntimeError, NotImplementedError, TypeError):
        return None
