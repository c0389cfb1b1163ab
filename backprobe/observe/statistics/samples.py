"""Sampled elements of many parameters, of their gradients and of their optimizer state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .numbers import FRACTION_SAMPLES, HALF_DTYPES, UPDATE_SAMPLES, sample_rows, sample_spacing, upcast

_norm = torch.linalg.vector_norm


class AdamMoment(NamedTuple):
    """Adam's state of one parameter: second moment and number of steps, with the settings beta2 and eps."""

    second: torch.Tensor
    steps: Any
    beta: float
    eps: float


class EqualSizeSamples:
    """Parameters with the same number of elements: the samples of each are one row of a matrix."""

    def __init__(self, at: list[int], weights: list[torch.Tensor], grads: list[torch.Tensor | None]) -> None:
        """Sample the weights before the step, and their gradients.

        :param at: the positions of the parameters in the whole list.
        """
        #: Positions of the parameters in the whole list.
        self.at, self._weights = at, weights
        self.size = weights[0].numel()
        self._views = sample_rows(weights, UPDATE_SAMPLES)
        #: Sampled weights before the step; after it, the negated updates.
        self.moved = torch.stack(self._views)
        self.spacing = sample_spacing(self.moved.shape[1], FRACTION_SAMPLES)
        self.grads = upcast(torch.stack(sample_rows(grads, UPDATE_SAMPLES, FRACTION_SAMPLES)))
        self.is_nonzero = self.grads != 0

    def compute_updates(self) -> None:
        """Turn the sampled weights in ``moved`` into the negated updates, after the step."""
        if not all(w.is_contiguous() for w in self._weights):  # the views are copies of the weights before the step
            self._views = sample_rows(self._weights, UPDATE_SAMPLES)
        if self.moved.dtype in HALF_DTYPES:
            self.moved = upcast(self.moved).sub_(upcast(torch.stack(self._views)))
        else:
            torch._foreach_sub_(list(self.moved.unbind()), self._views)
        self._views.clear()

    def adam_ratios(self, moments: Sequence[AdamMoment | None]) -> tuple[list[int], torch.Tensor | None]:
        """Return positions, and the norms of the sampled gradients over the square roots of their second moments."""
        known = [(row, at, moment) for row, at in enumerate(self.at) if (moment := moments[at]) is not None]
        if not known:
            return [], None
        moments_of_rows = [moment for *_, moment in known]
        grads = self.grads if len(known) == len(self.at) else torch.stack([self.grads[row] for row, *_ in known])
        seconds = upcast(
            torch.stack(sample_rows([moment.second for moment in moments_of_rows], UPDATE_SAMPLES, FRACTION_SAMPLES))
        )
        if any(isinstance(moment.steps, torch.Tensor) and not moment.steps.is_cpu for moment in moments_of_rows):
            # computed on the device
            powers = [
                moment.beta ** torch.as_tensor(moment.steps).detach().reshape(()).float() for moment in moments_of_rows
            ]
            seconds.div_((1 - torch.stack(powers))[:, None])
        else:
            corrections = [1 - moment.beta ** float(moment.steps) for moment in moments_of_rows]
            if len(set(corrections)) == 1:
                seconds.div_(corrections[0])
            else:
                torch._foreach_div_(list(seconds.unbind()), corrections)
        min_squared_eps = min(moment.eps for moment in moments_of_rows) ** 2
        return [at for _, at, _ in known], _norm(grads / seconds.clamp_(min=min_squared_eps).sqrt_(), dim=1)


class SampledParameters:
    """Sampled elements of parameters of one device and dtype, whose gradients share a dtype.

    Samples are evenly spaced: about ``UPDATE_SAMPLES`` elements of each weight, and ``FRACTION_SAMPLES`` of these for
    everything else. Parameters with the same number of elements form one matrix, so that one operation handles all of
    them. Tensors that methods return are in the order of the matrices; methods that convert numbers after reading
    return them in the order of the parameters.
    """

    def __init__(self, weights: Sequence[torch.Tensor], grads: Sequence[torch.Tensor | None]) -> None:
        """Sample all weights and gradients, grouped by number of elements."""
        groups: dict[int, list[int]] = {}
        for at, w in enumerate(weights):
            groups.setdefault(w.numel(), []).append(at)
        self._size_groups = [
            EqualSizeSamples(group, [weights[at] for at in group], [grads[at] for at in group])
            for group in groups.values()
        ]
        self._positions = [at for group in self._size_groups for at in group.at]
        self._update_sample_counts = [group.moved.shape[1] for group in self._size_groups for _ in group.at]
        self._gradient_sample_counts = [group.grads.shape[1] for group in self._size_groups for _ in group.at]
        self._element_counts = [group.size for group in self._size_groups for _ in group.at]
        #: Number of nonzero elements among the sampled elements of each gradient.
        self.nonzero = torch.cat([group.is_nonzero.sum(1) for group in self._size_groups])

    def divide(self, scale: Any) -> None:
        """Divide the gradients by `scale`; ``None`` leaves them unchanged."""
        for group in self._size_groups if scale is not None else ():
            group.grads = group.grads / scale.to(group.grads.device)

    def zeros(self, nonzero: Sequence[float]) -> list[float]:
        """Return the fraction of sampled gradient elements that are zero, per parameter."""
        return self._in_parameter_order(
            [1 - n / few for n, few in zip(nonzero, self._gradient_sample_counts, strict=True)]
        )

    def compute_updates(self) -> None:
        """Compute the updates after the optimizer has stepped."""
        for group in self._size_groups:
            group.compute_updates()

    def update_norms(self) -> torch.Tensor:
        """Return the norms of the sampled updates."""
        return torch.cat([_norm(group.moved, dim=1) for group in self._size_groups])

    def full_norms(self, update_norms: Sequence[float]) -> list[float]:
        """Return estimates of the update norms of whole parameters, from the norms of the samples."""
        parts = zip(update_norms, self._element_counts, self._update_sample_counts, strict=True)
        return self._in_parameter_order([length * math.sqrt(size / many) for length, size, many in parts])

    def count_unchanged(self) -> torch.Tensor:
        """Return the number of sampled elements that have a nonzero gradient and kept their value."""
        return torch.cat(
            [((group.moved[:, :: group.spacing] == 0) & group.is_nonzero).sum(1) for group in self._size_groups]
        )

    def quotients(self, some: Sequence[float], of: Sequence[float]) -> list[float]:
        """Return the quotients of two rows of numbers, 0 where the divisor is 0, in the order of the parameters."""
        return self._in_parameter_order([a / b if b else 0.0 for a, b in zip(some, of, strict=True)])

    def adam_ratios(self, moments: Sequence[AdamMoment | None]) -> tuple[list[int], list[torch.Tensor]]:
        """Return the norms of gradients over the square roots of their second moments, and their parameters' positions.

        Parameters without a second moment are omitted.
        """
        found = [group.adam_ratios(moments) for group in self._size_groups]
        return [at for positions, _ in found for at in positions], [norms for _, norms in found if norms is not None]

    def mean_squares(self, positions: Sequence[int], norms: Sequence[float]) -> list[float]:
        """Return the RMS values for `norms`, sorted by position."""
        few = dict(zip(self._positions, self._gradient_sample_counts, strict=True))
        return [norm / math.sqrt(few[at]) for at, norm in sorted(zip(positions, norms, strict=True))]

    def release(self) -> None:
        """Free the tensors. Only the conversion methods may be called afterwards."""
        self._size_groups.clear()

    def _in_parameter_order(self, values: Sequence[float]) -> list[float]:
        """Return numbers that are in the order of the matrices in the order of the parameters."""
        found = [0.0] * len(values)
        for at, value in zip(self._positions, values, strict=True):
            found[at] = value
        return found
