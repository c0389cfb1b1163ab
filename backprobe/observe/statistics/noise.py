"""The gradient noise scale, from the gradients that the micro batches of an accumulated step add.

Note [Two batch sizes]: McCandlish et al. 2018 (arXiv 1812.06162), appendix A.1, estimate the noise of gradients from
the squared norms of those of two batch sizes, here of one micro batch and of all k of a step. With s the mean of the k
squared norms and b the squared norm of their mean, unbiased estimates are ``(k b - s) / (k - 1)`` of the squared norm
of the true gradient, and ``(s - b) / (1 - 1/k)`` of the trace of the covariance of a micro batch's gradient. Their
quotient is not unbiased, and one look's is mostly noise: so each has a running mean over looks. The quotient is the
simple noise scale, in micro batches; times the size of one it is in examples.

What one call added is ``.grad`` after it minus ``.grad`` before it. Of a parameter of more than ``MANY`` elements that
is taken of evenly spaced ones, from another one on in each look, and counts as many times as they are apart: over looks
each element is taken as often as any other, and the squared norms are unbiased.
"""

from __future__ import annotations

from typing import Any

import torch

from ...torch_internals import private
from .numbers import HALF, Found, Numbers, usable

#: What a look counts in the running means, once there are as many as that makes.
RATE = 0.05
#: Elements of a parameter that are copied, at most.
MANY = 1 << 14
#: What is measured and makes the noise scale: the mean of the squared norms, the squared norm of the mean, how many.
SMALL, BIG, CALLS = "noise_small", "noise_big", "micro_batches"
#: Whether something was written between two calls that versions do not show, as through ``.data``: above zero.
ASTRAY = "noise_astray"
#: By device: parameters, where to begin, how far to go, and of how many elements that is.
Chosen = dict[Any, list[tuple[Any, int, int, int]]]


class Micro:
    """What the calls add that give one optimizer gradients, from one step of it to the next.

    :param turn: how often it was looked at before.
    """

    def __init__(self, optimizer: Any, turn: int) -> None:
        self._turn = turn
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._chosen: Chosen | None = None
        #: Not known after all: gradients that are rounded, or that cannot be looked at; calls that are not alike.
        self.spoilt = _several_ranks()
        #: The calls that gave something, and those of them that are added up.
        self.calls = self._added = 0
        self._first: dict[Any, Any] | None = None
        self._last: dict[Any, Any] | None = None
        self._sum: Any = None
        self._astray: Any = None

    def restart(self, empty: bool) -> None:
        """Gradients are not as the last call left them, if there was one: what comes is counted from here."""
        self.calls = self._added = 0
        self._sum, self._astray, self._first = None, None, None if empty or self.spoilt else self._now()
        self._last = self._first

    def begins(self) -> None:
        """Another call is about to be made. Where none comes after the first, nothing is copied."""
        if self.spoilt or not self.calls:
            return
        if self.calls > self._added:
            self._add()
            self._astray = (self._sum == 0).float() if self._sum is not None else None  # cleared
        elif self._last is not None and self._astray is not None:
            self._astray = self._astray + self._square(self._now(), self._last)

    def over(self) -> None:
        """It gave something."""
        self.calls += 1
        if not self.spoilt and self.calls > 1:
            self._add()

    def tell(self, title: str, scale: Any, numbers: Numbers) -> None:
        """The optimizer is about to step."""
        if self.spoilt or self._added < 2 or self._last is None:
            return
        mean, whole = self._sum / self.calls, self._square(self._last, self._first) / self.calls**2
        by = 1.0 if scale is None else scale.to(mean.device).square()
        numbers.add(SMALL, [title], [mean / by])
        numbers.add(BIG, [title], [whole / by])
        numbers.add(ASTRAY, [title], [self._astray])
        numbers.know(CALLS, {title: float(self.calls)})

    def _add(self) -> None:
        now = self._now()
        if not self.spoilt:
            square = self._square(now, self._last)
            self._sum = square if self._sum is None else self._sum + square
            self._last, self._added = now, self._added + 1

    def _choose(self) -> Chosen:
        """The elements that are copied: once, and only where something is."""
        chosen: Chosen = {}
        for p in self._parameters:
            if not p.requires_grad or not p.numel():
                continue
            if not private.is_plain(p) or private.hands_off(p) or not usable(p) or p.dtype in HALF:
                self.spoilt = True
                continue
            apart = -(-p.numel() // MANY) | 1
            begin = self._turn % apart
            chosen.setdefault(p.device, []).append((p, begin, apart, len(range(begin, p.numel(), apart))))
        return chosen

    def _now(self) -> dict[Any, Any]:
        """By device, a copy of the gradients."""
        if self._chosen is None:
            self._chosen = self._choose()
        found: dict[Any, Any] = {}
        if self.spoilt:
            return found
        for device, chosen in self._chosen.items():
            parts = []
            for p, begin, apart, count in chosen:
                grad = p.grad
                if grad is None:
                    parts.append(torch.zeros(count, device=device, dtype=p.dtype))
                elif private.is_plain(grad) and usable(grad) and grad.dtype not in HALF:
                    parts.append(grad.detach().reshape(-1)[begin::apart])
                else:
                    self.spoilt = True
                    return {}
            found[device] = torch.cat(parts)
        return found

    def _square(self, now: dict[Any, Any], before: dict[Any, Any] | None) -> Any:
        """The squared norm of what was added."""
        total = None
        for device, chosen in (self._chosen or {}).items():
            more = now[device] if before is None else now[device] - before[device]
            parts = list(more.split([count for *_, count in chosen]))
            apart = [apart for _, _, apart, _ in chosen]
            lengths = torch.stack(torch._foreach_norm(parts)).square()
            if max(apart) > 1:
                lengths = torch.stack([n * a for n, a in zip(lengths.unbind(), apart, strict=True)])
            square = lengths.sum()
            total = square if total is None else total + square.to(total.device)
        return total


def _several_ranks() -> bool:
    """Whether what one call adds may be the mean over ranks of what several did."""
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return bool(there and torch.distributed.get_world_size() > 1)


def estimates(small: float, big: float, calls: float) -> tuple[float, float]:
    """The trace of the covariance and the squared norm of the true gradient: Note [Two batch sizes]."""
    return (small - big) / (1 - 1 / calls), (calls * big - small) / (calls - 1)


class NoiseScale:
    """Running means, by optimizer."""

    def __init__(self) -> None:
        self._means: dict[str, tuple[int, float, float]] = {}

    def put(self, found: Found) -> None:
        """Instead of what was measured in a look, what it says by now. Nothing where the gradient is lost in noise."""
        smalls, bigs, astray = (found.pop(quantity, {}) for quantity in (SMALL, BIG, ASTRAY))
        scales = {}
        for title, small in smalls.items():
            if astray[title] != 0:
                del found[CALLS][title]
                continue
            trace, square = estimates(small, bigs[title], found[CALLS][title])
            looks, old_trace, old_square = self._means.get(title, (0, 0.0, 0.0))
            if not (trace - trace == 0.0 and square - square == 0.0):
                continue
            rate = max(1 / (looks + 1), RATE)
            trace, square = old_trace + rate * (trace - old_trace), old_square + rate * (square - old_square)
            self._means[title] = looks + 1, trace, square
            if square > 0:
                scales[title] = trace / square
        if scales:
            found["noise_scale"] = scales
