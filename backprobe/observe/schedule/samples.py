"""Norms of weights, gradients and updates, in some of the steps.

Note [Sampling updates]: norms of weights and updates are not free, an update needs a copy: they are taken in the first
steps, and then as often as a hundredth of the run's time allows, or a tenth of what may be spent at all, and copies are
bounded.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from ...records import ParameterStat
from ...torch_internals import private
from ...torch_internals.measure import is_float
from ...torch_internals.norms import holds, norm
from ..forward.naming import Naming

#: Bytes of weights copied at once to see an update.
COPY_LIMIT = 64 << 20
_clock = time.perf_counter


class Samples:
    """Of the parameters that optimizers step.

    :param share: of the script's own time that may be spent at all; ``None``: no bound.
    """

    def __init__(self, names: Naming, share: float | None = None) -> None:
        self._names, self._share = names, 0.01 if share is None else min(0.01, 0.1 * share)
        self._stats: dict[str, list[float | None]] = {}
        self._copies: list[tuple[str, Any, Any]] = []
        self._rotate = 0
        #: When it began, and the seconds that it has taken.
        self._begin, self._spent = _clock(), 0.0

    def due(self, first: bool) -> bool:
        """Whether it is time for one. `first`: it is one of the first steps."""
        return first or self._spent < self._share * (_clock() - self._begin)

    def before(self, parameters: list[Any], wait: bool = True) -> None:
        """An optimizer is about to step `parameters`. `wait`: for those on an accelerator too."""
        begin = _clock()
        named = [(self._names.of(p), p) for p in parameters if isinstance(p, torch.Tensor) and (wait or p.is_cpu)]
        if private.in_mode():  # of the user's, which does not see what we compute (Note [Unseen by the user's modes])
            named = [(name, p) for name, p in named if private.is_plain(p) and private.is_plain(p.grad)]
        with torch.no_grad(), private.unnoticed():
            weights = norms([p for _, p in named])
            grads = norms([p.grad for _, p in named])
            for (name, _), w, g in zip(named, weights, grads, strict=True):
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
            if used + size > COPY_LIMIT and used:
                self._rotate = (self._rotate + at) % count
                break
            if p.grad is None or p.layout is not torch.strided or size > COPY_LIMIT:
                continue
            used += size
            here = private.local(p)
            if here is not None:
                self._copies.append((name, p, here.detach().clone()))

    def after(self) -> None:
        """It has stepped."""
        if not self._copies:
            return
        begin = _clock()
        with torch.no_grad(), private.unnoticed():
            differences = [_difference(private.local(p).detach(), old) for _, p, old in self._copies]
            for (name, _, _), value in zip(self._copies, norms(differences), strict=True):
                if name in self._stats:
                    self._stats[name][2] = value
        self._copies.clear()
        self._spent += _clock() - begin

    def forget(self) -> None:
        """No optimizer will step that was about to."""
        self._copies.clear()

    def take(self) -> tuple[ParameterStat, ...]:
        """What is known of the step that is over."""
        taken, self._stats = self._stats, {}
        return tuple(ParameterStat(name, *values) for name, values in taken.items())


def _difference(new: Any, old: Any) -> Any:
    """`new` minus `old`, which is used up. In half precision the difference itself would be rounded."""
    return new.float() - old if old.dtype in (torch.float16, torch.bfloat16) else old.neg_().add_(new)


def norms(tensors: list[Any]) -> list[float | None]:
    """2-norms, one synchronisation for each device; ``None`` for what is not a dense tensor of floats. Of a distributed
    one that of the part that is here: Note [No collective of ours]."""
    tensors = [None if t is None or private.is_partial(t) else private.local(t) for t in tensors]
    out: list[float | None] = [None] * len(tensors)
    groups: dict[Any, list[int]] = {}
    for i, t in enumerate(tensors):
        if t is None or t.layout is not torch.strided or not is_float(t) or t.is_meta:
            continue
        if t.is_cpu:
            out[i] = _norm(t)
        else:
            groups.setdefault((t.device, t.dtype, type(t)), []).append(i)
    for indices in groups.values():
        single = torch.float32 if tensors[indices[0]].dtype in (torch.float16, torch.bfloat16) else None
        try:
            measured = torch._foreach_norm([tensors[i].detach() for i in indices], 2, single)
            values = torch.stack(list(measured)).tolist()
        except (RuntimeError, NotImplementedError, TypeError):  # a subclass (distributed, quantised) that has no norm
            continue
        for i, value in zip(indices, values, strict=True):
            out[i] = value if holds(value) else _norm(tensors[i])
    return out


def _norm(tensor: Any) -> float | None:
    try:
        return norm(tensor.detach())
    except (RuntimeError, NotImplementedError, TypeError):
        return None
