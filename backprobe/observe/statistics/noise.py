"""The gradient noise scale, from the gradients of the micro batches of an accumulated step.

Note [Two batch sizes]: McCandlish et al. 2018 (arXiv 1812.06162), appendix A.1, estimate gradient noise from the
squared gradient norms at two batch sizes; here these are one micro batch, and all k micro batches of a step. Let s be
the mean of the k squared norms, and b the squared norm of their mean. Unbiased estimates are ``(k b - s) / (k - 1)``
for the squared norm of the true gradient, and ``(s - b) / (1 - 1/k)`` for the trace of the covariance of a micro
batch's gradient. Their quotient is biased, and from one measurement it is mostly noise. So each estimate is averaged
over measurements before the division. The quotient is the simple noise scale in units of micro batches; multiply it by
the size of a micro batch to get examples.

The gradient of one call is ``.grad`` after the call minus ``.grad`` before it. For a parameter of more than
``MAX_COPIED_ELEMENTS`` elements, it is taken from evenly spaced elements and scaled up by their spacing. The offset
changes with every measurement, so that over time each element is used equally often, and the squared norms are
unbiased.
"""

from __future__ import annotations

from typing import Any

import torch

from ...torch_internals import private
from ...torch_internals.optimizers import parameters_of
from ...torch_internals.sharding import has_several_ranks
from .numbers import HALF_DTYPES, Found, Numbers, is_measurable

#: Minimum weight of a measurement in the running means.
MIN_MEAN_WEIGHT = 0.05
#: Target for the maximum number of elements of a parameter that are copied.
MAX_COPIED_ELEMENTS = 1 << 14
#: The measured quantities that give the noise scale: the mean of the squared norms, the squared norm of the mean, and
#: the number of micro batches.
SMALL_BATCH, BIG_BATCH, MICRO_BATCHES = "noise_small", "noise_big", "micro_batches"
#: The squared norm of writes between two calls that version counters do not show, such as writes through ``.data``.
UNSEEN_WRITES = "noise_astray"
#: By device: (parameter, offset of the first element, spacing of the elements, number of elements).
Chosen = dict[Any, list[tuple[Any, int, int, int]]]


class MicroBatches:
    """Gradients that the backward calls add for one optimizer between two of its steps.

    :param turn: how many times the optimizer was measured before.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, turn: int) -> None:
        """Start before the first call of a step; several ranks make the noise scale invalid."""
        self._turn = turn
        self._parameters = parameters_of(optimizer)
        self._chosen: Chosen | None = None
        #: The noise scale cannot be computed: half precision, gradients that cannot be read, or dissimilar backward
        #: calls.
        self.invalid = has_several_ranks()
        #: Number of calls that gave gradients, and number of these whose squared norms are in the sum.
        self.calls = self._summed_calls = 0
        self._first_copy: dict[object, torch.Tensor] | None = None
        self._last_copy: dict[object, torch.Tensor] | None = None
        self._sum_of_squares: Any = None
        self._unseen_writes: torch.Tensor | None = None

    def restart(self, empty: bool) -> None:
        """Start a new count, because gradients changed since the last call or there was no call before.

        :param empty: no parameter has a gradient.
        """
        self.calls = self._summed_calls = 0
        self._sum_of_squares, self._unseen_writes, self._first_copy = (
            None,
            None,
            None if empty or self.invalid else self._copy_gradients(),
        )
        self._last_copy = self._first_copy

    def call_begins(self) -> None:
        """Record that another call is about to be made. Nothing is copied until a second call begins."""
        if self.invalid or not self.calls:
            return
        if self.calls > self._summed_calls:
            self._add_call()
            self._unseen_writes = (
                (self._sum_of_squares == 0).float() if self._sum_of_squares is not None else None
            )  # cleared through ``.data``
        elif self._last_copy is not None and self._unseen_writes is not None:
            self._unseen_writes = self._unseen_writes + self._squared_distance(self._copy_gradients(), self._last_copy)

    def call_returned(self) -> None:
        """Record that the call gave gradients."""
        self.calls += 1
        if not self.invalid and self.calls > 1:
            self._add_call()

    def add_quantities(self, title: str, scale: Any, numbers: Numbers) -> None:
        """Add the quantities of the step to `numbers`. Called when the optimizer is about to step.

        :param title: the name of the optimizer.
        :param scale: the loss scale, ``None`` for none.
        """
        if self.invalid or self._summed_calls < 2 or self._last_copy is None:
            return
        mean, whole = (
            self._sum_of_squares / self.calls,
            self._squared_distance(self._last_copy, self._first_copy) / self.calls**2,
        )
        by = 1.0 if scale is None else scale.to(mean.device).square()
        numbers.add(SMALL_BATCH, [title], [mean / by])
        numbers.add(BIG_BATCH, [title], [whole / by])
        numbers.add(UNSEEN_WRITES, [title], [self._unseen_writes])
        numbers.add_known(MICRO_BATCHES, {title: float(self.calls)})

    def _add_call(self) -> None:
        """Add the squared norm of the gradient that the last call gave: the change of the sampled elements since the
        call before.
        """
        now = self._copy_gradients()
        if not self.invalid:
            square = self._squared_distance(now, self._last_copy)
            self._sum_of_squares = square if self._sum_of_squares is None else self._sum_of_squares + square
            self._last_copy, self._summed_calls = now, self._summed_calls + 1

    def _choose_elements(self) -> Chosen:
        """Return the elements that are copied, by device; mark the count invalid if a gradient may not be read as
        needed.
        """
        chosen: Chosen = {}
        for p in self._parameters:
            if not p.requires_grad or not p.numel():
                continue
            if (
                not private.is_plain(p)
                or private.is_unsafe_to_read(p)
                or not is_measurable(p)
                or p.dtype in HALF_DTYPES
            ):
                self.invalid = True
                continue
            spacing = -(-p.numel() // MAX_COPIED_ELEMENTS) | 1
            begin = self._turn % spacing
            chosen.setdefault(p.device, []).append((p, begin, spacing, len(range(begin, p.numel(), spacing))))
        return chosen

    def _copy_gradients(self) -> dict[object, torch.Tensor]:
        """Return a copy of the chosen elements of all gradients, by device; empty if the count is invalid."""
        if self._chosen is None:
            self._chosen = self._choose_elements()
        found: dict[object, torch.Tensor] = {}
        if self.invalid:
            return found
        for device, chosen in self._chosen.items():
            parts = []
            for p, begin, spacing, count in chosen:
                grad = p.grad
                if grad is None:
                    parts.append(torch.zeros(count, device=device, dtype=p.dtype))
                elif private.is_plain(grad) and is_measurable(grad) and grad.dtype not in HALF_DTYPES:
                    parts.append(grad.detach().reshape(-1)[begin::spacing])
                else:
                    self.invalid = True
                    return {}
            found[device] = torch.cat(parts)
        return found

    def _squared_distance(self, now: dict[object, torch.Tensor], before: dict[object, torch.Tensor] | None) -> Any:
        """Return the squared norm of the difference between two copies of gradients, scaled up from samples to all
        elements.

        :param before: ``None`` for zeros.
        """
        total = None
        for device, chosen in (self._chosen or {}).items():
            more = now[device] if before is None else now[device] - before[device]
            parts = list(more.split([count for *_, count in chosen]))
            spacing = [spacing for _, _, spacing, _ in chosen]
            lengths = torch.stack(torch._foreach_norm(parts)).square()
            if max(spacing) > 1:
                lengths = torch.stack([n * a for n, a in zip(lengths.unbind(), spacing, strict=True)])
            square = lengths.sum()
            total = square if total is None else total + square.to(total.device)
        return total


def estimates(small: float, big: float, calls: float) -> tuple[float, float]:
    """Return estimates of the trace of the covariance and of the squared norm of the true gradient.

    See Note [Two batch sizes]. `small` is the mean of the squared norms, `big` the squared norm of the mean.
    """
    return (small - big) / (1 - 1 / calls), (calls * big - small) / (calls - 1)


class NoiseScale:
    """Running means of the two estimates, by optimizer."""

    def __init__(self) -> None:
        self._means: dict[str, tuple[int, float, float]] = {}

    def replace_quantities(self, found: Found) -> None:
        """Replace the quantities of one measurement in `found` by the noise scale from the running means.

        Nothing replaces them while the estimated squared norm of the true gradient is not positive.
        """
        smalls, bigs, unseen_writes = (found.pop(quantity, {}) for quantity in (SMALL_BATCH, BIG_BATCH, UNSEEN_WRITES))
        scales = {}
        for title, small in smalls.items():
            if unseen_writes[title] != 0:
                del found[MICRO_BATCHES][title]
                continue
            trace, square = estimates(small, bigs[title], found[MICRO_BATCHES][title])
            looks, old_trace, old_square = self._means.get(title, (0, 0.0, 0.0))
            if not (trace - trace == 0.0 and square - square == 0.0):
                continue
            rate = max(1 / (looks + 1), MIN_MEAN_WEIGHT)
            trace, square = old_trace + rate * (trace - old_trace), old_square + rate * (square - old_square)
            self._means[title] = looks + 1, trace, square
            if square > 0:
                scales[title] = trace / square
        if scales:
            found["noise_scale"] = scales
