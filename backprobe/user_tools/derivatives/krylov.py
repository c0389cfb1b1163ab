"""Golub-Kahan bidiagonalization: an orthonormal basis in which J is small and nearly all of its large part is seen.

Golub and Kahan 1965; Paige and Saunders 1982, the lower form: ``J V_p = U_{p+1} B_p``. Every new vector is made
orthogonal to all before it, twice, so no spurious copies of singular values appear.
"""

from __future__ import annotations

import math

import torch

from .flat import Flat


class NotFinite(ArithmeticError):
    """A product with J holds NaN or Inf."""


class GolubKahan:
    """p steps cost p VJPs and p JVPs."""

    def __init__(self, flat: Flat, generator: torch.Generator) -> None:
        """Begin with one random vector on the side of y."""
        self._flat, self._generator = flat, generator
        #: Orthonormal rows: p of length n, p + 1 of length m.
        self.v: list[torch.Tensor] = []
        self.u: list[torch.Tensor] = [self._random(flat.m, [])]
        #: Diagonal and lower diagonal of B.
        self._alpha: list[float] = []
        self._beta: list[float] = []
        #: Length and direction of the next v, when it is known (from a VJP).
        self._next: tuple[float, torch.Tensor] | None = None
        #: Sum of |J v|^2 over the basis: the part of the squared Frobenius norm that it holds, exactly.
        self.energy = 0.0

    @property
    def full(self) -> bool:
        """Whether one of the sides has no further direction."""
        return len(self.v) >= self._flat.n or bool(len(self.u) > self._flat.m)

    def _random(self, size: int, basis: list[torch.Tensor]) -> torch.Tensor:
        """Return a random unit vector of length `size` that is orthogonal to `basis`."""
        raw = torch.randn(size, generator=self._generator, dtype=self._flat.dtype).to(self._flat.device)
        return _orthogonal(raw, basis, float("inf"))[1]

    def look(self) -> float:
        """Return the length of the part of ``J^T u`` outside of the basis: the next alpha.

        It takes one VJP, which is kept for the next step.
        """
        if self._next is None:
            raw = self._flat.rows(self.u[-1][None])[0]
            length, direction = _orthogonal(raw, self.v, float(torch.linalg.vector_norm(raw.double())))
            if not length:
                direction = self._random(self._flat.n, self.v)
            self._next = length, direction
        return self._next[0]

    def step(self) -> None:
        """Take one step: add a vector to each basis, by one VJP (unless ``look`` made it) and one JVP."""
        alpha = self.look()
        assert self._next is not None
        v, self._next = self._next[1], None
        self.v.append(v)
        self._alpha.append(alpha)
        image = self._flat.columns(v[None])[0]
        size = float(torch.linalg.vector_norm(image.double()))
        self.energy += size**2
        if len(self.u) >= self._flat.m:
            self._beta.append(0.0)
            self.u.append(torch.zeros_like(self.u[0]))  # R^m is used up
            return
        length, direction = _orthogonal(image, self.u, size)
        self._beta.append(length)
        # Where the space is used up for this start, go on from a new direction: equal singular values need it.
        self.u.append(direction if length else self._random(self._flat.m, self.u))

    def svd(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return left vectors in basis u [p + 1, p], singular values [p], and right vectors in basis v [p, p]."""
        p = len(self.v)
        b = torch.zeros(p + 1, p, dtype=torch.float64)
        b[range(p), range(p)] = torch.tensor(self._alpha, dtype=torch.float64)
        b[range(1, p + 1), range(p)] = torch.tensor(self._beta, dtype=torch.float64)
        left, values, right = torch.linalg.svd(b, full_matrices=False)
        return left, values, right.T

    def outside(self, g: torch.Tensor) -> torch.Tensor:
        """Rows of `g` without their part in the basis v."""
        if not self.v:
            return g
        basis = torch.stack(self.v)
        return g - (g @ basis.T) @ basis


def _orthogonal(raw: torch.Tensor, basis: list[torch.Tensor], size: float) -> tuple[float, torch.Tensor]:
    """Return length and direction of the part of `raw` outside of `basis`.

    The length is 0 if only rounding errors are left of the original length `size`.
    """
    if basis:
        rows = torch.stack(basis)
        for _ in range(2):
            raw = raw - (rows @ raw) @ rows
    length = float(torch.linalg.vector_norm(raw.double()))
    if not math.isfinite(length):
        raise NotFinite
    noise = 20 * torch.finfo(raw.dtype).eps
    if size != float("inf") and not length > noise * size:
        return 0.0, raw
    return length, raw / length
