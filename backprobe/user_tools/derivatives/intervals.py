"""Samples of squared norms, what they say of the mean, and quantiles for their intervals.

Note [Orthogonal probes]: Probes are rows of a random orthonormal frame of R^m, scaled to length sqrt(m) ("orthogonal"
    probes). For ``g_i = J^T w_i`` and ``A = J J^T``: the mean of ``|g_i|^2`` is the squared Frobenius norm, and for
    ``i != j`` the mean of ``(g_i . g_j)^2`` is P, where the variance of the mean of k samples is ``2 P (1 - k/m) / k``
    (moments of a uniform direction). So pairs of samples show the variance, with no bias, far better than the k values
    alone.
Note [Intervals of estimates]: Each sample is close to a weighted sum of squares of normal variables, so the mean gets
    the quantiles of a chi-square variable with the same mean and variance (Satterthwaite). For rank one that is exact.
    Pairs may have missed one large direction: P is at least half the variance seen, and ``2 mean^2 / k^2`` is added.
"""

from __future__ import annotations

import math

import torch

#: Maximum degrees of freedom for which a quantile is found by bisection.
_MAX_BISECTED_FREEDOM = 1e5


class Moments:
    """Samples of squared norms for one or more blocks, added batch by batch."""

    def __init__(self, population: int) -> None:
        """Begin without samples.
        :param population: the most samples that there can be: the dimension m of the probes.
        """
        self._population = population
        self.samples: list[torch.Tensor] = []
        self._pairs: torch.Tensor | None = None
        self._pair_count = 0

    @property
    def count(self) -> int:
        """The number of samples so far."""
        return sum(len(part) for part in self.samples)

    def add(self, g: torch.Tensor) -> None:
        """Add samples `g` of shape [k, blocks, elements of a block]."""
        g = g.to(torch.float64) if g.device.type != "mps" else g.float()
        gram = torch.einsum("ibe,jbe->bij", g, g)
        k = len(g)
        self.samples.append(gram.diagonal(dim1=1, dim2=2).T.cpu())
        if k > 1:
            off = gram.square().sum((1, 2)) - gram.diagonal(dim1=1, dim2=2).square().sum(1)
            off = off.clamp(min=0).cpu()
            self._pairs = off if self._pairs is None else self._pairs + off
            self._pair_count += k * (k - 1)

    def estimate(self, confidence: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the mean and both ends of its interval, [blocks] each. See Note [Intervals of estimates]."""
        q = torch.cat(self.samples).double()
        k = len(q)
        mean = q.mean(0)
        spread = mean.square() if self._pairs is None else self._pairs.double() / self._pair_count
        if k > 1:
            spread = torch.maximum(spread, q.var(0) / 2)
        spread = spread + 2 * mean.square() / k**2
        variance = 2 * spread * max(0.0, 1 - k / self._population) / k
        low, high = chi_square_interval(mean, variance, confidence)
        return mean, low, high


def chi_square_interval(
    mean: torch.Tensor, variance: torch.Tensor, confidence: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the interval for the expectation of a scaled chi-square variable with this sample mean and variance."""
    sure = ~((mean > 0) & (variance > 0))
    freedom = torch.where(sure, torch.ones_like(mean), 2 * mean.square() / torch.where(sure, 1.0, variance))
    tail = (1 - confidence) / 2
    low = mean * freedom / chi_square_quantile(1 - tail, freedom)
    high = mean * freedom / chi_square_quantile(tail, freedom)
    return torch.where(sure, mean, low), torch.where(sure, mean, high)


def chi_square_quantile(p: float, freedom: torch.Tensor) -> torch.Tensor:
    """Return the quantile `p` of chi-square distributions, by degrees of freedom.

    It bisects the logarithm of the quantile with the incomplete gamma function. For many degrees of freedom it uses the
    formula of Wilson and Hilferty (1931), whose error is below 1e-7 there.
    """
    freedom = freedom.double()
    z = math.sqrt(2) * float(torch.erfinv(torch.tensor(2 * p - 1, dtype=torch.float64)))
    part = 2 / (9 * freedom)
    smooth = freedom * (1 - part + z * part.sqrt()) ** 3
    few = freedom.clamp(max=_MAX_BISECTED_FREEDOM)
    low, high = torch.full_like(few, -700.0), (few + 40 * few.sqrt() + 200).log()
    for _ in range(80):
        middle = (low + high) / 2
        below = torch.special.gammainc(few / 2, middle.exp() / 2) < p
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return torch.where(freedom > _MAX_BISECTED_FREEDOM, smooth, high.exp())


def student_quantile(p: float, freedom: int) -> float:
    """Return the t with ``P(|T| < t) = p`` for Student's distribution.

    It uses the finite sums for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_inside(middle, freedom) < p else (low, middle)
    return high


def _student_inside(t: float, freedom: int) -> float:
    """Return ``P(|T| < t)`` for Student's distribution, by the finite sums."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for i in range(freedom // 2):
        total += term
        term *= cosine**2 * ((2 * i + 2) / (2 * i + 3) if odd else (2 * i + 1) / (2 * i + 2))
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
