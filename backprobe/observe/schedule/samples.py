"""Samples the norms of weights, gradients and updates in some of the steps.

Note [Sampling updates]: norms of weights and updates are not free, and an update needs a copy. They are taken in the
first steps, and then as often as a hundredth of the run's time allows, or a tenth of the budget; the size of the copies
is bounded. However slow the machine is, an optimizer whose last sample is of step n is sampled again in its first
recorded step from 2 n on: so the last sample of a run is from its second half, if steps are recorded there. Norms of
tensors on an accelerator stay there: the caller fetches them together with other numbers (Note [Nothing waits]).
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
from ...torch_internals.norms import is_reliable, norm
from ..forward.naming import Naming

#: The most bytes of weights copied at once to compute updates.
MAX_COPY_BYTES = 64 << 20
_clock = time.perf_counter
#: Positions of the norms in the values of a parameter.
WEIGHT, GRAD, UPDATE = range(3)


@dataclass(frozen=True)
class AcceleratorNorms:
    """Norms that stay on an accelerator.

    :ivar numbers: a vector: the norms, then the largest absolute elements of the same tensors if `has_maxima`.
    :ivar names: the names of the parameters.
    :ivar kind: ``WEIGHT``, ``GRAD`` or ``UPDATE``.
    """

    numbers: torch.Tensor
    names: Sequence[str]
    kind: int
    has_maxima: bool

    def values(self, read: Sequence[float]) -> list[float | None]:
        """Return the norms; ``None`` for a norm that is out of the range of its precision."""
        count = len(self.names)
        if not self.has_maxima:
            return list(read)
        pairs = zip(read[:count], read[count:], strict=True)
        return [top if not 0.0 < top < math.inf else value if is_reliable(value) else None for value, top in pairs]

    def fill_in(self, step: Step, read: Sequence[float]) -> Step:
        """Return `step` with the norms, now that they are known."""
        return replace(step, parameters=with_norms(step.parameters, self, read))


@dataclass
class AcceleratorClipNorm:
    """The ``clip_norm`` of a step, which stays on an accelerator.

    :ivar numbers: a vector of the one number.
    """

    numbers: torch.Tensor

    def fill_in(self, step: Step, read: Sequence[float]) -> Step:
        """Return `step` with the norm, now that it is known."""
        return replace(step, clip_norm=read[0])


def with_norms(
    parameters: Sequence[ParameterStat], away: AcceleratorNorms, read: Sequence[float]
) -> tuple[ParameterStat, ...]:
    """Return `parameters` with the norms that were `away`, now that they are known (`read`)."""
    known = dict(zip(away.names, away.values(read), strict=True))
    found = []
    for one in parameters:
        values = [one.weight, one.grad, one.update]
        values[away.kind] = known.get(one.name, values[away.kind])
        found.append(ParameterStat(one.name, *values))
    return tuple(found)


class Samples:
    """Sampler of the norms of the parameters that optimizers step.

    :param share: the budget, as a share of the script's own time; ``None``: no bound.
    """

    def __init__(self, names: Naming, share: float | None = None) -> None:
        """Start without samples; at most a hundredth of the time is spent, or a tenth of `share`."""
        self._names, self._share = names, 0.01 if share is None else min(0.01, 0.1 * share)
        self._norms_by_name: dict[str, list[float | None]] = {}
        self._copies: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        self._on_accelerator: list[AcceleratorNorms] = []
        self._next_copied = 0
        #: When sampling began, and the seconds that it has taken.
        self._began, self._seconds = _clock(), 0.0

    def is_due(self, step: int, sampled_step: int) -> bool:
        """Return whether a sample of an optimizer is due in `step`; `sampled_step` is the step of its last one."""
        return step >= 2 * sampled_step or self._seconds < self._share * (_clock() - self._began)

    def measure_before_step(self, parameters: list[torch.Tensor], away: bool = True) -> None:
        """Sample `parameters` before an optimizer steps them. `away`: measure those on an accelerator too."""
        begin = _clock()
        named = [(self._names.of(p), p) for p in parameters if isinstance(p, torch.Tensor) and (away or p.is_cpu)]
        if private.in_mode():  # the user's mode must not see our computations (Note [Unseen by the user's modes])
            named = [(name, p) for name, p in named if private.is_plain(p) and private.is_plain(p.grad)]
        with torch.no_grad(), private.hide_ops():
            names = [name for name, _ in named]
            weights = self._norms(names, [p for _, p in named], WEIGHT)
            grads = self._norms(names, [p.grad for _, p in named], GRAD)
            for name, w, g in zip(names, weights, grads, strict=True):
                self._norms_by_name[name] = [w, g, None]
            self._copy(named)
        self._seconds += _clock() - begin

    def _copy(self, named: list[tuple[str, torch.Tensor]]) -> None:
        """Copy as many of the (name, weight) pairs as the bound allows, beginning where the last sample ended."""
        used = 0
        count = len(named)
        for at in range(count):
            name, p = named[(self._next_copied + at) % count]
            size = p.numel() * p.element_size()
            if used + size > MAX_COPY_BYTES and used:
                self._next_copied = (self._next_copied + at) % count
                break
            if p.grad is None or p.layout is not torch.strided or size > MAX_COPY_BYTES:
                continue
            used += size
            here = private.local(p)
            if here is not None:
                self._copies.append((name, p, here.detach().clone()))

    def measure_updates(self) -> None:
        """Measure by how much the sampled parameters have changed, after the optimizer has stepped."""
        if not self._copies:
            return
        begin = _clock()
        with torch.no_grad(), private.hide_ops():
            differences = [_difference(private.local(p).detach(), old) for _, p, old in self._copies]
            names = [name for name, _, _ in self._copies]
            for name, value in zip(names, self._norms(names, differences, UPDATE), strict=True):
                if name in self._norms_by_name:
                    self._norms_by_name[name][UPDATE] = value
        self._copies.clear()
        self._seconds += _clock() - begin

    def drop_copies(self) -> None:
        """Drop the copies: the optimizer will not step."""
        self._copies.clear()

    def take(self) -> tuple[tuple[ParameterStat, ...], list[AcceleratorNorms]]:
        """Return and reset the norms of the finished step, and its norms that stay on an accelerator."""
        taken, self._norms_by_name = self._norms_by_name, {}
        away, self._on_accelerator = self._on_accelerator, []
        return tuple(ParameterStat(name, *values) for name, values in taken.items()), away

    def _norms(self, names: Sequence[str], tensors: list[torch.Tensor], kind: int) -> list[float | None]:
        """Return the norms of tensors on the CPU, and keep those that stay on an accelerator; see ``norms``."""
        found, away = norms(names, tensors, kind)
        self._on_accelerator += away
        return found


def _difference(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return `new` minus `old`, reusing the memory of `old`.

    In half precision the difference is computed in float32.
    """
    return new.float() - old if old.dtype in (torch.float16, torch.bfloat16) else old.neg_().add_(new)


def norms(
    names: Sequence[str], tensors: Sequence[torch.Tensor], kind: int
) -> tuple[list[float | None], list[AcceleratorNorms]]:
    """Return the 2-norms of tensors on the CPU, and those that stay on accelerators.

    The first list has ``None`` for the latter, and for anything that is not a dense floating-point tensor. For a
    distributed tensor only the local part counts: Note [No own collectives].
    """
    here: list[torch.Tensor] = [None if t is None or private.is_partial(t) else private.local(t) for t in tensors]
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
        away.append(AcceleratorNorms(numbers, [names[i] for i in places], kind, not exact))
    return out, away


def _norm(tensor: torch.Tensor) -> float | None:
    """Return the 2-norm of a tensor; ``None`` if torch cannot compute it."""
    try:
        return norm(tensor.detach())
    except (RuntimeError, NotImplementedError, TypeError):
        return None
