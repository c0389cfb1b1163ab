"""Weights, gradients and updates of the parameters that an optimizer steps, and what it did.

Note [What an optimizer really did]: an update is the weight after the step minus a copy taken before it, subtracted in
single precision at least: of weights in half precision the difference itself would be rounded. What such a weight was
spared, because the update was below its last digit, is ``unchanged``: the share of elements with a gradient that
stayed as they were. An optimizer that divides out a loss scale itself (``grad_scale``) is given gradients that are
scaled: that is divided out here too, and where it found an Inf (``found_inf``) it did nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .accumulated import Heard, stepped, total
from .numbers import FEW, MANY, Numbers, greatest, norms, some, wide

#: Products with a weight and its transpose that one look at its spectral norm takes, and the first.
PRODUCTS, AT_FIRST = 2, 8


class Parameters:
    """What one optimizer does in one step.

    :param title: the name of the optimizer.
    :param name_of: gives the name of a parameter.
    :param heard: what is known of the backward calls before.
    """

    def __init__(
        self, optimizer: Any, title: str, numbers: Numbers, name_of: Callable[[Any], str], heard: Heard | None = None
    ) -> None:
        self._optimizer, self._title, self._numbers, self._heard = optimizer, title, numbers, heard
        #: By device and dtype: names, parameters, and the betas and eps of their group.
        self._groups: dict[Any, list[tuple[str, Any, Any]]] = {
            key: [(name_of(p), p, group) for p, group in members] for key, members in stepped(optimizer).items()
        }
        self._copies: list[tuple[list[str], list[Any], list[Any], Few]] = []

    @property
    def all(self) -> list[tuple[str, Any]]:
        return [(name, p) for members in self._groups.values() for name, p, _ in members]

    def before(self, closely: bool = True) -> None:
        """The optimizer is about to step. `closely`: what takes another pass over each gradient too."""
        add, scale = self._numbers.add, _number(getattr(self._optimizer, "grad_scale", None))
        met: list[Any] = []
        for members in self._groups.values():
            names = [name for name, _, _ in members]
            self._numbers.sizes.update((name, p.numel()) for name, p, _ in members)
            sums = self._numbers.sums
            self._numbers.fan_in.update((name, sums[id(p)]) for name, p, _ in members if id(p) in sums)
            weights, grads = [p.detach() for _, p, _ in members], [p.grad.detach() for _, p, _ in members]
            add("weight_norm", names, norms(weights))
            lengths = norms(grads)
            met += _divided(lengths, scale)
            add("grad_norm", names, met[-len(names) :])
            self._not_finite(names, grads, lengths)
            if closely:
                add("grad_max", names, _divided(greatest(grads), scale))
            few = Few(grads)
            add("grad_zeros", names, [1 - n for n in few.shares(few.flat != 0)])
            few.flat = few.flat if scale is None else few.flat / scale.to(few.flat.device)
            self._copies.append((names, weights, [some(w, MANY).clone() for w in weights], few))
        if met and self._heard is not None and self._heard.length is not None:
            length, whole = self._heard.length, total(met)
            factor = torch.where(length == 0, (whole == 0).float(), whole.to(length.device) / length)
            add("clip_factor", [self._title], [factor])
            self._heard.micro.tell(self._title, self._heard.scale, self._numbers)

    def _not_finite(self, names: Sequence[str], grads: Sequence[Any], lengths: Sequence[Any]) -> None:
        """The share of elements that are not. On the CPU only where there is one: nobody waits there."""
        for name, grad, length in zip(names, grads, lengths, strict=True):
            if not length.is_cpu or not math.isfinite(length):
                self._numbers.add("grad_nonfinite", [name], [1 - torch.isfinite(grad).sum() / grad.numel()])
            else:
                self._numbers.know(("grad_nonfinite", name), 0.0)

    def after(self) -> None:
        """It has stepped."""
        add = self._numbers.add
        for (names, weights, old, few), members in zip(self._copies, self._groups.values(), strict=True):
            new = [wide(some(w, MANY)) for w in weights]
            moved = [a - wide(b) for a, b in zip(new, old, strict=True)]
            parts = [math.sqrt(w.numel() / m.numel()) for w, m in zip(weights, moved, strict=True)]
            add("update_norm", names, [n * part for n, part in zip(norms(moved), parts, strict=True)])
            there = few.flat != 0
            stayed = few.shares((Few(moved).flat == 0) & there)
            add("unchanged", names, [a / b.clamp(min=1e-12) for a, b in zip(stayed, few.shares(there), strict=True)])
            self._second_moments(members, few)
        self._copies.clear()
        several = len(self._optimizer.param_groups) > 1
        for i, group in enumerate(self._optimizer.param_groups):
            name = self._title + (f".{i}" if several else "")
            rate = group.get("lr")
            if isinstance(rate, torch.Tensor) and rate.numel() == 1:
                add("lr", [name], [rate.detach().reshape(())])
            elif isinstance(rate, (int, float)):
                self._numbers.know(("lr", name), float(rate))

    def _second_moments(self, members: Sequence[tuple[str, Any, Any]], few: Few) -> None:
        """RMS of the gradient over the root of its second moment, bias corrected, as Adam keeps it (arXiv 2304.13013),
        where the optimizer keeps one."""
        found = []
        for at, (name, p, group) in enumerate(members):
            state = self._optimizer.state.get(p) or {}
            second, steps, betas = state.get("exp_avg_sq"), state.get("step"), group.get("betas")
            if isinstance(second, torch.Tensor) and second.shape == p.shape and betas and steps is not None:
                found.append((at, name, second, steps, float(betas[1]), float(group.get("eps") or 1e-8)))
        if not found:
            return
        here = few if len(found) == len(members) else few.only([at for at, *_ in found])
        seconds = Few([second for _, _, second, *_ in found])
        least = min(eps for *_, eps in found) ** 2
        corrected = []
        for part, (_, _, _, steps, beta, _) in zip(seconds.flat.split(seconds.sizes), found, strict=True):
            away = isinstance(steps, torch.Tensor) and not steps.is_cpu
            corrected.append(part / (1 - beta ** (steps.detach().float() if away else float(steps))))
        ratios = here.norms(here.flat / torch.cat(corrected).clamp(min=least).sqrt())
        names = [name for _, name, *_ in found]
        self._numbers.add("adam_ratio", names, [r / math.sqrt(n) for r, n in zip(ratios, here.sizes, strict=True)])


class Few:
    """Some elements of each of several tensors, one after the other: as one vector, so that a pass is one operation."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        parts = [wide(some(some(t, MANY), FEW)) for t in tensors]
        self.sizes = [part.numel() for part in parts]
        self.flat = torch.cat(parts)

    def only(self, places: Sequence[int]) -> Few:
        """Those of the tensors at `places`."""
        parts = self.flat.split(self.sizes)
        return Few([parts[at] for at in places])

    def norms(self, values: Any) -> list[Any]:
        """By tensor, of `values` at its elements."""
        return list(torch._foreach_norm(list(values.split(self.sizes))))

    def shares(self, true: Any) -> list[Any]:
        """By tensor, how many of its elements are `true`, as a share."""
        return [n.square().round() / size for n, size in zip(self.norms(true.float()), self.sizes, strict=True)]


def _number(value: Any) -> Any:
    return value.detach().reshape(()).float() if isinstance(value, torch.Tensor) and value.numel() == 1 else None


def _divided(numbers: list[Any], by: Any) -> list[Any]:
    return numbers if by is None else [n / by.to(n.device) for n in numbers]


class Spectra:
    """Stable ranks: the squared Frobenius norm over the squared spectral norm, from a few products with a weight and
    its transpose, each look going on where the last one ended. No random numbers: those are the script's."""

    def __init__(self) -> None:
        self._vectors: dict[str, Any] = {}

    def look(self, named: Sequence[tuple[str, Any]], numbers: Numbers) -> None:
        for name, p in named:
            if p.dim() < 2 or min(p.shape[0], p[0].numel()) < 2:
                continue
            w = wide(p.detach()).flatten(1)
            vector = self._vectors.get(name)
            rounds = PRODUCTS
            if vector is None or vector.shape[0] != w.shape[1] or vector.device != w.device:
                vector = torch.cos(torch.arange(w.shape[1], device=w.device, dtype=w.dtype) * 2.399963)
                vector, rounds = vector / vector.norm(), AT_FIRST
            for _ in range(rounds):
                back = w.t().mv(w.mv(vector))
                vector = back / back.norm().clamp(min=1e-30)
            self._vectors[name] = vector
            spectral = w.mv(vector).norm()
            numbers.add("stable_rank", [name], [(w.norm() / spectral.clamp(min=1e-30)).square()])
