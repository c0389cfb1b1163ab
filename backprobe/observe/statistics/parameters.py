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

from .accumulated import AccumulationState, concatenated_norm, measurable_groups
from .numbers import Numbers, extremes, max_abs, norms, upcast
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
        optimizer: torch.optim.Optimizer,
        title: str,
        numbers: Numbers,
        name_of: Callable[[torch.Tensor], str],
        accumulation: AccumulationState | None = None,
    ) -> None:
        """Group the parameters of `optimizer` that can be measured together; the measured values go to `numbers`.
        :param title: the name of the optimizer in the statistics.
        """
        self._optimizer, self._title, self._numbers, self._accumulation = optimizer, title, numbers, accumulation
        #: By device and dtypes: (name, parameter, parameter group).
        self._groups: dict[object, list[tuple[str, torch.Tensor, Any]]] = {
            key: [(name_of(p), p, group) for p, group in members]
            for key, members in measurable_groups(optimizer).items()
        }
        self._samples: list[SampledParameters] = []

    def measure_before_step(self, spectra: Spectra | None = None) -> None:
        """Measure before the optimizer steps.

        :param spectra: state of the spectral norms of its weights; if given, quantities that need another pass over
            each gradient and weight are measured as well.
        """
        add, scale = self._numbers.add, _as_scalar(getattr(self._optimizer, "grad_scale", None))
        groups_found: list[torch.Tensor] = []
        for members in self._groups.values():
            names = [name for name, _, _ in members]
            self._numbers.sizes.update((name, p.numel()) for name, p, _ in members)
            sums = self._numbers.sums
            found = ((name, sums.get(p)) for name, p, _ in members)
            self._numbers.fan_in.update((name, count) for name, count in found if count is not None)
            weights, grads = [p.detach() for _, p, _ in members], [p.grad.detach() for _, p, _ in members]
            sizes, lengths = norms(weights), torch.stack(norms(grads))
            add("weight_norm", names, sizes)
            groups_found.append(_divided_by(lengths, scale))
            add("grad_norm", names, groups_found[-1])
            self._add_nonfinite_fractions(names, grads, lengths)
            if spectra is not None:
                bounds = zip(*map(extremes, grads), strict=True)
                add("grad_max", names, *[_divided_by(torch.stack(b), scale) for b in bounds], convert=max_abs)
                spectra.add_ranks(names, weights, sizes, self._numbers)
            samples = SampledParameters(weights, grads)
            add("grad_zeros", names, samples.nonzero, convert=samples.zeros)
            samples.divide(scale)
            self._samples.append(samples)
        if groups_found and self._accumulation is not None:
            if (length := self._accumulation.grad_norm) is not None:
                whole = concatenated_norm(groups_found)
                factor = torch.where(length == 0, (whole == 0).float(), whole.to(length.device) / length)
                add("clip_factor", [self._title], [factor])
            self._accumulation.micro_batches.add_quantities(self._title, self._accumulation.scale, self._numbers)

    def _add_nonfinite_fractions(
        self, names: Sequence[str], grads: Sequence[torch.Tensor], lengths: torch.Tensor
    ) -> None:
        """Add the fraction of non-finite elements of each gradient.

        On the CPU, elements are counted only if a norm is not finite: reading the norms there does not wait.
        """
        known = lengths.tolist() if lengths.is_cpu else [math.nan] * len(grads)
        self._numbers.add_known("grad_nonfinite", dict.fromkeys(names, 0.0))
        if math.isfinite(sum(known)):
            return
        for name, grad, length in zip(names, grads, known, strict=True):
            if length - length != 0.0:
                self._numbers.add("grad_nonfinite", [name], [1 - torch.isfinite(grad).sum() / grad.numel()])

    def measure_after_step(self) -> None:
        """Measure update norms, unchanged elements, Adam's ratios and learning rates after the optimizer has
        stepped.
        """
        add = self._numbers.add
        for samples, members in zip(self._samples, self._groups.values(), strict=True):
            names = [name for name, _, _ in members]
            samples.compute_updates()
            add("update_norm", names, samples.update_norms(), convert=samples.full_norms)
            add("unchanged", names, samples.count_unchanged(), samples.nonzero, convert=samples.quotients)
            self._add_adam_ratios(members, samples)
            samples.release()
        self._samples.clear()
        several = len(self._optimizer.param_groups) > 1
        for i, group in enumerate(self._optimizer.param_groups):
            name = self._title + (f".{i}" if several else "")
            rate = group.get("lr")
            if isinstance(rate, torch.Tensor) and rate.numel() == 1:
                add("lr", [name], [rate.detach().reshape(())])
            elif isinstance(rate, (int, float)):
                self._numbers.add_known("lr", {name: float(rate)})

    def _add_adam_ratios(self, members: Sequence[tuple[str, torch.Tensor, Any]], samples: SampledParameters) -> None:
        """Add the RMS of the gradient divided by the square root of its bias-corrected second moment.

        See arXiv 2304.13013. Only for parameters whose optimizer state has the entries that Adam keeps.
        """
        states, moments = self._optimizer.state, list[AdamMoment | None]()
        if not states:
            return
        for _, p, group in members:
            state = states.get(p) or {}
            second, steps, betas = state.get("exp_avg_sq"), state.get("step"), group.get("betas")
            has_adam_state = (
                isinstance(second, torch.Tensor) and second.shape == p.shape and betas and steps is not None
            )
            moments.append(
                AdamMoment(second, steps, float(betas[1]), float(group.get("eps") or 1e-8)) if has_adam_state else None
            )
        places, norms = samples.adam_ratios(moments)
        if places:
            names = [members[at][0] for at in sorted(places)]
            self._numbers.add("adam_ratio", names, torch.cat(norms), convert=partial(samples.mean_squares, places))


def _as_scalar(value: object) -> torch.Tensor | None:
    """Return a tensor of one element as a scalar in single precision; ``None`` for anything else."""
    return value.detach().reshape(()).float() if isinstance(value, torch.Tensor) and value.numel() == 1 else None


def _divided_by(numbers: torch.Tensor, by: Any) -> torch.Tensor:
    """Return `numbers` divided by the tensor `by`, or as they are if that is ``None``."""
    return numbers if by is None else numbers / by.to(numbers.device)


class Spectra:
    """Stable ranks of weights: squared Frobenius norm over squared spectral norm.

    Spectral norms come from power iteration: a few products per measurement, each measurement starting from the vector
    of the last one. The first vector is not random, to leave the script's random state unchanged.
    """

    def __init__(self) -> None:
        self._vectors: dict[str, torch.Tensor] = {}

    def add_ranks(
        self, names: Sequence[str], weights: Sequence[torch.Tensor], lengths: Sequence[torch.Tensor], numbers: Numbers
    ) -> None:
        """Add the stable ranks of the matrices among `weights`.

        :param lengths: the Frobenius norms of `weights`.
        """
        measured_names, whole, product_norms, back_norms = [], [], [], []
        for name, weight, length in zip(names, weights, lengths, strict=True):
            if weight.dim() < 2 or min(weight.shape[0], weight[0].numel()) < 2:
                continue
            w = upcast(weight).flatten(1)
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
            product_norms.append(across.norm())
            back_norms.append(size)
        numbers.add("stable_rank", measured_names, whole, product_norms, back_norms, convert=_stable_ranks)


def _stable_ranks(whole: Sequence[float], product_norms: Sequence[float], back_norms: Sequence[float]) -> list[float]:
    """Return the squared ratios of Frobenius norms to spectral norms.

    For a unit vector v, ``norm(W.T @ W @ v) / norm(W @ v)`` (`back_norms` over `product_norms`) approaches the
    spectral norm from below as v approaches the first right singular vector.

    :param whole: Frobenius norms.
    """
    return [(w * a / max(b, 1e-30)) ** 2 for w, a, b in zip(whole, product_norms, back_norms, strict=True)]
