"""Sampled elements of many parameters, of their gradients and of their optimizer state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .numbers import FRACTION_SAMPLES, HALF_DTYPES, UPDATE_SAMPLES, every, rows, wide

_norm = torch.linalg.vector_norm


class AdamMoment(NamedTuple):
    """Adam's state of one parameter: second moment and number of steps, with the settings beta2 and eps."""

    second: Any
    steps: Any
    beta: float
    eps: float


class EqualSizeSamples:
    """Parameters with the same number of elements: the samples of each are one row of a matrix."""

    def __init__(self, at: list[int], weights: list[torch.Tensor], grads: list[torch.Tensor | None]) -> None:
        #: Positions of the parameters in the whole list.
        self.at, self._weights = at, weights
        self.size = weights[0].numel()
        self._views = rows(weights, UPDATE_SAMPLES)
        #: Sampled weights before the step; after it, the negated updates.
        self.moved = torch.stack(self._views)
        self.apart = every(self.moved.shape[1], FRACTION_SAMPLES)
        self.grads = wide(torch.stack(rows(grads, UPDATE_SAMPLES, FRACTION_SAMPLES)))
        self.there = self.grads != 0

    def move(self) -> None:
        if not all(w.is_contiguous() for w in self._weights):  # the views are copies of the weights before the step
            self._views = rows(self._weights, UPDATE_SAMPLES)
        if self.moved.dtype in HALF_DTYPES:
            self.moved = wide(self.moved).sub_(wide(torch.stack(self._views)))
        else:
            torch._foreach_sub_(list(self.moved.unbind()), self._views)
        self._views.clear()

    def ratios(self, moments: Sequence[AdamMoment | None]) -> tuple[list[int], Any]:
        """Return positions, and the norms of the sampled gradients over the square roots of their second moments."""
        known = [(row, at, moment) for row, at in enumerate(self.at) if (moment := moments[at]) is not None]
        if not known:
            return [], None
        here = [moment for *_, moment in known]
        grads = self.grads if len(known) == len(self.at) else torch.stack([self.grads[row] for row, *_ in known])
        seconds = wide(torch.stack(rows([moment.second for moment in here], UPDATE_SAMPLES, FRACTION_SAMPLES)))
        if any(isinstance(moment.steps, torch.Tensor) and not moment.steps.is_cpu for moment in here):
            # computed on the device
            powers = [moment.beta ** torch.as_tensor(moment.steps).detach().reshape(()).float() for moment in here]
            seconds.div_((1 - torch.stack(powers))[:, None])
        else:
            by = [1 - moment.beta ** float(moment.steps) for moment in here]
            if len(set(by)) == 1:
                seconds.div_(by[0])
            else:
                torch._foreach_div_(list(seconds.unbind()), by)
        least = min(moment.eps for moment in here) ** 2
        return [at for _, at, _ in known], _norm(grads / seconds.clamp_(min=least).sqrt_(), dim=1)


class SampledParameters:
    """Sampled elements of parameters of one device and dtype, whose gradients share a dtype.

    Samples are evenly spaced: about ``UPDATE_SAMPLES`` elements of each weight, and ``FRACTION_SAMPLES`` of these for
    everything else. Parameters with the same number of elements form one matrix, so that one operation handles all of
    them. Tensors that methods return are in the order of the matrices; methods that convert numbers after reading
    return them in the order of the parameters.
    """

    def __init__(self, weights: Sequence[torch.Tensor], grads: Sequence[torch.Tensor | None]) -> None:
        runs: dict[int, list[int]] = {}
        for at, w in enumerate(weights):
            runs.setdefault(w.numel(), []).append(at)
        self._runs = [
            EqualSizeSamples(run, [weights[at] for at in run], [grads[at] for at in run]) for run in runs.values()
        ]
        self._order = [at for run in self._runs for at in run.at]
        self._many = [run.moved.shape[1] for run in self._runs for _ in run.at]
        self._few = [run.grads.shape[1] for run in self._runs for _ in run.at]
        self._all = [run.size for run in self._runs for _ in run.at]
        #: Number of nonzero elements among the sampled elements of each gradient.
        self.nonzero = torch.cat([run.there.sum(1) for run in self._runs])

    def divide(self, scale: Any) -> None:
        """Divide the gradients by `scale`; ``None`` leaves them unchanged."""
        for run in self._runs if scale is not None else ():
            run.grads = run.grads / scale.to(run.grads.device)

    def zeros(self, nonzero: Sequence[float]) -> list[float]:
        """Return the fraction of sampled gradient elements that are zero, per parameter."""
        return self._ordered([1 - n / few for n, few in zip(nonzero, self._few, strict=True)])

    def move(self) -> None:
        """Compute the updates after the optimizer has stepped."""
        for run in self._runs:
            run.move()

    def lengths(self) -> torch.Tensor:
        """Return the norms of the sampled updates."""
        return torch.cat([_norm(run.moved, dim=1) for run in self._runs])

    def of_all(self, lengths: Sequence[float]) -> list[float]:
        """Return estimates of the update norms of whole parameters, from the norms of the samples."""
        parts = zip(lengths, self._all, self._many, strict=True)
        return self._ordered([length * math.sqrt(size / many) for length, size, many in parts])

    def stayed(self) -> torch.Tensor:
        """Return the number of sampled elements that have a nonzero gradient and kept their value."""
        return torch.cat([((run.moved[:, :: run.apart] == 0) & run.there).sum(1) for run in self._runs])

    def quotients(self, some: Sequence[float], of: Sequence[float]) -> list[float]:
        return self._ordered([a / b if b else 0.0 for a, b in zip(some, of, strict=True)])

    def ratios(self, moments: Sequence[AdamMoment | None]) -> tuple[list[int], list[Any]]:
        """Return the norms of gradients over the square roots of their second moments, and their parameters' positions.

        Parameters without a second moment are omitted.
        """
        found = [run.ratios(moments) for run in self._runs]
        return [at for places, _ in found for at in places], [norms for _, norms in found if norms is not None]

    def mean_squares(self, places: Sequence[int], norms: Sequence[float]) -> list[float]:
        """Return the RMS values for `norms`, sorted by position."""
        few = dict(zip(self._order, self._few, strict=True))
        return [norm / math.sqrt(few[at]) for at, norm in sorted(zip(places, norms, strict=True))]

    def release(self) -> None:
        """Free the tensors. Only the conversion methods may be called afterwards."""
        self._runs.clear()

    def _ordered(self, values: Sequence[float]) -> list[float]:
        found = [0.0] * len(values)
        for at, value in zip(self._order, values, strict=True):
            found[at] = value
        return found
