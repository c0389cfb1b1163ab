"""Measures the weights, gradients and updates of an optimizer's parameters, and the optimizer's settings.

Note [Effective updates]: an update is the weight after the step minus a copy from before it, subtracted in
at least single precision, because the difference of half-precision weights would be rounded. Updates that rounding
lost, because they were smaller than the last digit of the weight, appear as ``unchanged``: the fraction of elements
with a nonzero gradient that kept their value. If an optimizer divides out the loss scale itself (``grad_scale``), its
gradients are still scaled, and the scale is divided out here as well. If such an optimizer found an Inf
(``found_inf``), it skipped the update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from .accumulated import AccumulationState, stepped, total
from .numbers import Numbers, extremes, greatest, norms, wide
from .samples import AdamMoment, SampledParameters

#: Matrix products with a weight and its transpose per measurement of its spectral norm, and in the first measurement.
POWER_ITERATIONS, FIRST_POWER_ITERATIONS = 1, 16


class Parameters:
    """Measurements of one step of one optimizer.

    :param title: the name of the optimizer.
    :param name_of: returns the name of a parameter.
    :param accumulation: state of the backward calls before the step.
    """

    def __init__(
        self,
        optimizer: Any,
        title: str,
        numbers: Numbers,
        name_of: Callable[[Any], str],
        accumulation: AccumulationState | None = None,
    ) -> None:
        self._optimizer, self._title, self._numbers, self._accumulation = optimizer, title, numbers, accumulation
        #: By device and dtypes: (name, parameter, parameter group).
        self._groups: dict[Any, list[tuple[str, Any, Any]]] = {
            key: [(name_of(p), p, group) for p, group in members] for key, members in stepped(optimizer).items()
        }
        self._looked: list[SampledParameters] = []

    def before(self, spectra: Spectra | None = None) -> None:
        """Measure before the optimizer steps.

        :param spectra: state of the spectral norms of its weights; if given, quantities that need another pass over
            each gradient and weight are measured as well.
        """
        add, scale = self._numbers.add, _number(getattr(self._optimizer, "grad_scale", None))
        groups_found: list[Any] = []
        for members in self._groups.values():
            names = [name for name, _, _ in members]
            self._numbers.sizes.update((name, p.numel()) for name, p, _ in members)
            sums = self._numbers.sums
            found = ((name, sums.get(p)) for name, p, _ in members)
            self._numbers.fan_in.update((name, count) for name, count in found if count is not None)
            weights, grads = [p.detach() for _, p, _ in members], [p.grad.detach() for _, p, _ in members]
            sizes, lengths = norms(weights), torch.stack(norms(grads))
            add("weight_norm", names, sizes)
            groups_found.append(_divided(lengths, scale))
            add("grad_norm", names, groups_found[-1])
            self._not_finite(names, grads, lengths)
            if spectra is not None:
                bounds = zip(*map(extremes, grads), strict=True)
                add("grad_max", names, *[_divided(torch.stack(b), scale) for b in bounds], then=greatest)
                spectra.add_ranks(names, weights, sizes, self._numbers)
            few = SampledParameters(weights, grads)
            add("grad_zeros", names, few.nonzero, then=few.zeros)
            few.divide(scale)
            self._looked.append(few)
        if groups_found and self._accumulation is not None:
            if (length := self._accumulation.length) is not None:
                whole = total(groups_found)
                factor = torch.where(length == 0, (whole == 0).float(), whole.to(length.device) / length)
                add("clip_factor", [self._title], [factor])
            self._accumulation.micro.add_quantities(self._title, self._accumulation.scale, self._numbers)

    def _not_finite(self, names: Sequence[str], grads: Sequence[Any], lengths: Any) -> None:
        """Add the fraction of non-finite elements of each gradient.

        On the CPU, elements are counted only if a norm is not finite: reading the norms there does not wait.
        """
        known = lengths.tolist() if lengths.is_cpu else [math.nan] * len(grads)
        self._numbers.know("grad_nonfinite", dict.fromkeys(names, 0.0))
        if math.isfinite(sum(known)):
            return
        for name, grad, length in zip(names, grads, known, strict=True):
            if length - length != 0.0:
                self._numbers.add("grad_nonfinite", [name], [1 - torch.isfinite(grad).sum() / grad.numel()])

    def after(self) -> None:
        """Measure after the optimizer has stepped."""
        add = self._numbers.add
        for few, members in zip(self._looked, self._groups.values(), strict=True):
            names = [name for name, _, _ in members]
            few.move()
            add("update_norm", names, few.lengths(), then=few.of_all)
            add("unchanged", names, few.stayed(), few.nonzero, then=few.quotients)
            self._second_moments(members, few)
            few.release()
        self._looked.clear()
        several = len(self._optimizer.param_groups) > 1
        for i, group in enumerate(self._optimizer.param_groups):
            name = self._title + (f".{i}" if several else "")
            rate = group.get("lr")
            if isinstance(rate, torch.Tensor) and rate.numel() == 1:
                add("lr", [name], [rate.detach().reshape(())])
            elif isinstance(rate, (int, float)):
                self._numbers.know("lr", {name: float(rate)})

    def _second_moments(self, members: Sequence[tuple[str, Any, Any]], few: SampledParameters) -> None:
        """Add the RMS of the gradient divided by the square root of its bias-corrected second moment.

        See arXiv 2304.13013. Only for parameters whose optimizer state has the entries that Adam keeps.
        """
        states, moments = self._optimizer.state, list[AdamMoment | None]()
        if not states:
            return
        for _, p, group in members:
            state = states.get(p) or {}
            second, steps, betas = state.get("exp_avg_sq"), state.get("step"), group.get("betas")
            there = isinstance(second, torch.Tensor) and second.shape == p.shape and betas and steps is not None
            moments.append(
                AdamMoment(second, steps, float(betas[1]), float(group.get("eps") or 1e-8)) if there else None
            )
        places, norms = few.ratios(moments)
        if places:
            names = [members[at][0] for at in sorted(places)]
            self._numbers.add("adam_ratio", names, torch.cat(norms), then=partial(few.mean_squares, places))


def _number(value: object) -> Any:
    return value.detach().reshape(()).float() if isinstance(value, torch.Tensor) and value.numel() == 1 else None


def _divided(numbers: Any, by: Any) -> Any:
    return numbers if by is None else numbers / by.to(numbers.device)


class Spectra:
    """Stable ranks of weights: squared Frobenius norm over squared spectral norm.

    Spectral norms come from power iteration: a few products per measurement, each measurement starting from the vector
    of the last one. The first vector is not random, to leave the script's random state unchanged.
    """

    def __init__(self) -> None:
        self._vectors: dict[str, Any] = {}

    def add_ranks(self, names: Sequence[str], weights: Sequence[Any], lengths: Sequence[Any], numbers: Numbers) -> None:
        """Add the stable ranks of the matrices among `weights`.

        :param lengths: the Frobenius norms of `weights`.
        """
        measured_names, whole, there, back = [], [], [], []
        for name, weight, length in zip(names, weights, lengths, strict=True):
            if weight.dim() < 2 or min(weight.shape[0], weight[0].numel()) < 2:
                continue
            w = wide(weight).flatten(1)
            vector = self._vectors.get(name)
            rounds = POWER_ITERATIONS
            if vector is None or vector.shape[0] != w.shape[1] or vector.device != w.device:
                vector = torch.cos(torch.arange(w.shape[1], device=w.device, dtype=w.dtype) * 2.399963)
                vector, rounds = vector / vector.norm(), FIRST_POWER_ITERATIONS
            for _ in range(rounds):
                across = w.mv(vector)
                vector = w.t().mv(across)
                size = vector.norm()
                vector /= size.clamp(min=1e-30)
            self._vectors[name] = vector
            measured_names.append(name)
            whole.append(length)
            there.append(across.norm())
            back.append(size)
        numbers.add("stable_rank", measured_names, whole, there, back, then=_ranks)


def _ranks(whole: Sequence[float], there: Sequence[float], back: Sequence[float]) -> list[float]:
    """Return the squared ratios of Frobenius norms to spectral norms.

    For a unit vector v, ``norm(W.T @ W @ v) / norm(W @ v)`` (`back` over `there`) approaches the spectral norm from
    below as v approaches the first right singular vector.

    :param whole: Frobenius norms.
    """
    return [(w * a / max(b, 1e-30)) ** 2 for w, a, b in zip(whole, there, back, strict=True)]
