"""Some elements of each of many parameters, of their gradients and of what an optimizer keeps of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .numbers import FEW, HALF, MANY, every, rows, wide

_norm = torch.linalg.vector_norm


class Moment(NamedTuple):
    """What Adam keeps of a parameter's squared gradient, after how many steps, and its settings."""

    second: Any
    steps: Any
    beta: float
    eps: float


class Alike:
    """Parameters with as many elements: what is taken of each is a row of a matrix."""

    def __init__(self, at: list[int], weights: list[Any], grads: list[Any]) -> None:
        #: Their places among all; how far the few elements are apart among the many.
        self.at, self._weights = at, weights
        self.size = weights[0].numel()
        self._views = rows(weights, MANY)
        #: Of the weights before the step; after it, what they were moved by, with the sign reversed.
        self.moved = torch.stack(self._views)
        self.apart = every(self.moved.shape[1], FEW)
        self.grads = wide(torch.stack(rows(grads, MANY, FEW)))
        self.there = self.grads != 0

    def move(self) -> None:
        if not all(w.is_contiguous() for w in self._weights):  # they were copied
            self._views = rows(self._weights, MANY)
        if self.moved.dtype in HALF:
            self.moved = wide(self.moved).sub_(wide(torch.stack(self._views)))
        else:
            torch._foreach_sub_(list(self.moved.unbind()), self._views)
        self._views.clear()

    def ratios(self, moments: Sequence[Moment | None]) -> tuple[list[int], Any]:
        """Places, and norms of what gradients are over the roots of second moments."""
        known = [(row, at, moment) for row, at in enumerate(self.at) if (moment := moments[at]) is not None]
        if not known:
            return [], None
        here = [moment for *_, moment in known]
        grads = self.grads if len(known) == len(self.at) else torch.stack([self.grads[row] for row, *_ in known])
        seconds = wide(torch.stack(rows([moment.second for moment in here], MANY, FEW)))
        if any(isinstance(moment.steps, torch.Tensor) and not moment.steps.is_cpu for moment in here):
            # they stay where they are
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


class Sampled:
    """Parameters of one device and dtype, with gradients of one: evenly spaced elements of each (``MANY`` of weights,
    and ``FEW`` of these of all else), in a matrix for each number of elements that they have. So an operation is one
    for all that are alike. Numbers of theirs come in the order of the matrices; what works on them when they are read
    gives them in that of the parameters."""

    def __init__(self, weights: Sequence[Any], grads: Sequence[Any]) -> None:
        runs: dict[int, list[int]] = {}
        for at, w in enumerate(weights):
            runs.setdefault(w.numel(), []).append(at)
        self._runs = [Alike(run, [weights[at] for at in run], [grads[at] for at in run]) for run in runs.values()]
        self._order = [at for run in self._runs for at in run.at]
        self._many = [run.moved.shape[1] for run in self._runs for _ in run.at]
        self._few = [run.grads.shape[1] for run in self._runs for _ in run.at]
        self._all = [run.size for run in self._runs for _ in run.at]
        #: How many elements of the gradients are not zero.
        self.nonzero = torch.cat([run.there.sum(1) for run in self._runs])

    def divide(self, scale: Any) -> None:
        """Gradients were multiplied by it."""
        for run in self._runs if scale is not None else ():
            run.grads = run.grads / scale.to(run.grads.device)

    def zeros(self, nonzero: Sequence[float]) -> list[float]:
        """The share of those elements of the gradients that are zero."""
        return self._ordered([1 - n / few for n, few in zip(nonzero, self._few, strict=True)])

    def move(self) -> None:
        """The optimizer has stepped."""
        for run in self._runs:
            run.move()

    def lengths(self) -> Any:
        """The norms of what the elements were moved by."""
        return torch.cat([_norm(run.moved, dim=1) for run in self._runs])

    def of_all(self, lengths: Sequence[float]) -> list[float]:
        """The norms of the updates of whole parameters."""
        parts = zip(lengths, self._all, self._many, strict=True)
        return self._ordered([length * math.sqrt(size / many) for length, size, many in parts])

    def stayed(self) -> Any:
        """How many elements have a gradient, and stayed as they were."""
        return torch.cat([((run.moved[:, :: run.apart] == 0) & run.there).sum(1) for run in self._runs])

    def quotients(self, some: Sequence[float], of: Sequence[float]) -> list[float]:
        return self._ordered([a / b if b else 0.0 for a, b in zip(some, of, strict=True)])

    def ratios(self, moments: Sequence[Moment | None]) -> tuple[list[int], list[Any]]:
        """The places of those that have one of `moments`, and the norms of gradients over their roots."""
        found = [run.ratios(moments) for run in self._runs]
        return [at for places, _ in found for at in places], [norms for _, norms in found if norms is not None]

    def mean_squares(self, places: Sequence[int], norms: Sequence[float]) -> list[float]:
        """RMS of what has such norms, in the order of `places`."""
        few = dict(zip(self._order, self._few, strict=True))
        return [norm / math.sqrt(few[at]) for at, norm in sorted(zip(places, norms, strict=True))]

    def release(self) -> None:
        """Nothing more is asked but what follows from numbers, which may be read a look later."""
        self._runs.clear()

    def _ordered(self, values: Sequence[float]) -> list[float]:
        found = [0.0] * len(values)
        for at, value in zip(self._order, values, strict=True):
            found[at] = value
        return found
