"""The Jacobian as a matrix: products with flat vectors, and random frames to probe it with."""

from __future__ import annotations

import torch

from .named import count
from .products import Products, Tensors

#: Elements of a frame that is made in one piece; a larger one is orthogonal within each batch only.
_WHOLE = 1 << 24


class Flat:
    """J as an m x n matrix. Vectors are float64 if a tensor is, else float32; on the device of the first x."""

    def __init__(self, products: Products) -> None:
        """Take the products with J, and determine its size, dtype and device."""
        self.products = products
        self._y, self._x = products.y.tensors, products.x.tensors
        self.m, self.n = count(self._y), count(self._x)
        wide = any(t.dtype == torch.float64 for t in [*self._y, *self._x])
        self.dtype = torch.float64 if wide else torch.float32
        self.device = self._x[0].device

    def rows(self, v: torch.Tensor) -> torch.Tensor:
        """Return ``v J`` ([k, n]) for v of shape [k, m], by VJPs."""
        return self._join(self.products.vjp.batch(self._split(v, self._y)))

    def columns(self, u: torch.Tensor) -> torch.Tensor:
        """Return ``u J^T`` ([k, m]) for u of shape [k, n], by JVPs."""
        return self._join(self.products.jvp.batch(self._split(u, self._x)))

    def _split(self, v: torch.Tensor, like: Tensors) -> Tensors:
        """Return flat vectors `v`, [k, elements], as one tensor for each of `like`, with its shape, device and
        dtype.
        """
        parts = v.split([t.numel() for t in like], dim=1)
        return [p.reshape(len(v), *t.shape).to(t.device, t.dtype) for p, t in zip(parts, like, strict=True)]

    def _join(self, tensors: Tensors) -> torch.Tensor:
        """Return batches of tensors as flat vectors, [k, elements]."""
        return torch.cat([t.detach().reshape(len(t), -1).to(self.device, self.dtype) for t in tensors], dim=1)


class Frame:
    """Rows of a random orthonormal frame of R^m, scaled to length sqrt(m): at most `count` of them, m at most."""

    def __init__(self, m: int, count: int, flat: Flat, generator: torch.Generator) -> None:
        """Draw the frame at once if it is small enough; otherwise each batch is drawn when it is taken."""
        self._m, self._flat, self._generator = m, flat, generator
        self._rows = self._make(min(count, m)) if m * count <= _WHOLE else None
        self._used = 0

    def _make(self, count: int) -> torch.Tensor:
        """Return `count` random orthogonal rows, each of m elements and of length sqrt(m)."""
        raw = torch.randn(self._m, count, generator=self._generator, dtype=self._flat.dtype)
        q: torch.Tensor = torch.linalg.qr(raw)[0].T * self._m**0.5
        return q.to(self._flat.device)

    def take(self, count: int) -> torch.Tensor:
        """Return the next `count` rows, or as many as remain of m."""
        if self._rows is None:
            return self._make(count)
        rows = self._rows[self._used : self._used + count]
        self._used += len(rows)
        return rows


def generator_of(seed: int | torch.Generator) -> torch.Generator:
    """Return a new CPU generator for a number; return a generator unchanged."""
    return seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
