"""The spectral norm of a Jacobian, its largest singular values with their vectors, and its effective rank."""

from __future__ import annotations

import time
import warnings

import torch

from ...basics.errors import BackprobeError
from .dense import chunk_of, units, whole_number
from .estimators import Square, square_of
from .flat import Flat, Frame, generator_of
from .guard import Guard
from .intervals import Moments
from .krylov import GolubKahan, NotFinite
from .named import Named, Tree
from .norms import check_numbers, first_sentence, flat_jacobian, jacobian_norm_of
from .progress import Progress
from .results import JacobianNorm, SpectralNorm

#: Maximum length of the smaller side of a matrix that is computed densely; if the graph has no JVPs, maximum number of
#: elements.
_MAX_DENSE_SIDE, _MAX_DENSE_ELEMENTS = 32, 1 << 26


def spectral_norm(
    y: Tree,
    x: Tree,
    k: int = 1,
    *,
    tolerance: float = 1e-4,
    max_steps: int = 100,
    max_seconds: float = 30.0,
    probes: int = 16,
    confidence: float = 0.95,
    seed: int | torch.Generator = 0,
    progress: bool | None = None,
) -> SpectralNorm:
    """Return the `k` largest singular values of the Jacobian of `y` with respect to `x`.

    The first is the spectral norm: the largest gain of any direction. The method is Golub-Kahan bidiagonalization with
    full reorthogonalization.

    A step takes one VJP and one JVP, and keeps one vector of y's size and one of x's. It stops when every residual is
    below `tolerance` times the largest singular value. Where one side has at most 32 elements, or the graph has no
    JVPs and y is small, the Jacobian is built and decomposed.

    If that takes longer than `max_seconds`, the result is what is known by then: lower bounds, with
    ``converged=False``, and a ``UserWarning`` says so. One product is never interrupted.

    Args:
        y, x: as for :func:`backprobe.vjp`.
        k: how many singular values and vectors.
        tolerance: relative residual that counts as converged.
        max_steps: give up then; the result says ``converged=False`` and holds lower bounds.
        max_seconds: give up after the product that ends later than this, maybe with fewer than `k` singular values.
        probes: extra VJPs for the Frobenius norm and with it the effective rank; 0 for neither.
        confidence, seed, progress: as for :func:`backprobe.jacobian_norm`.

    Raises:
        BackprobeError: as :func:`backprobe.jacobian_norm`; if the graph has no JVPs and y is large.
    """
    clock = _Clock(max_seconds)
    flat = flat_jacobian(y, x, "a spectral norm")
    check_numbers(max(probes, 2), confidence)
    small = min(flat.m, flat.n)
    if not small:
        empty = flat.products.x if flat.m else flat.products.y
        raise BackprobeError(
            f"the Jacobian is {flat.m:,} x {flat.n:,} and has no singular values: {empty.names[0]} has shape "
            f"{list(empty.tensors[0].shape)}, no element"
        )
    whole_number("max_steps", max_steps, 1), whole_number("k", k, 1)
    if k > small:
        raise BackprobeError(f"k={k}: the Jacobian is {flat.m:,} x {flat.n:,}; k from 1 to {small}")
    generator = generator_of(seed)
    with Guard(flat.products.y.tensors, flat.products.x.tensors)():
        note = ""
        if small > _MAX_DENSE_SIDE:
            try:
                flat.products.transposed()
                return _bidiagonal(
                    flat, k, tolerance, max(max_steps, k), probes, confidence, generator, progress, clock
                )
            except NotFinite:
                raise _not_finite(flat) from None
            except BackprobeError as error:
                if flat.products.missing or flat.m * flat.n > _MAX_DENSE_ELEMENTS:
                    raise
                note = f"dense, VJPs only: {first_sentence(error)}"
        return _dense(flat, k, confidence, progress, clock, note)


class _Clock:
    """The time that a call has taken, and its limit."""

    def __init__(self, max_seconds: float) -> None:
        """Start the clock.
        :raises BackprobeError: the limit is not above 0.
        """
        if not max_seconds > 0:
            raise BackprobeError(f"max_seconds={max_seconds!r}: give a number of seconds above 0")
        self.begin, self._limit = time.perf_counter(), max_seconds
        #: How far the work had come when the time was over; empty if it was not.
        self.stopped_at = ""

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.perf_counter() - self.begin

    @property
    def is_over(self) -> bool:
        """Whether the limit has passed."""
        return self.seconds > self._limit

    def stop(self, where: str) -> None:
        """Warn that the time is over, with how far the work has come."""
        self.stopped_at = f"stopped after {self.seconds:.2g} s, {where}"
        warnings.warn(
            f"spectral_norm {self.stopped_at}: the singular values are lower bounds. Give more max_seconds, or tensors "
            "nearer to each other",
            stacklevel=4,
        )


def _bidiagonal(
    flat: Flat,
    k: int,
    tolerance: float,
    max_steps: int,
    probes: int,
    confidence: float,
    generator: torch.Generator,
    shown: bool | None,
    clock: _Clock,
) -> SpectralNorm:
    """Compute singular values by bidiagonalization, until they converge, `max_steps` are made, or the time is over."""
    basis = GolubKahan(flat, generator)
    with Progress(2 * max_steps + probes, "singular values", shown) as progress:
        while True:
            basis.step()
            progress.advance(2)
            p = len(basis.v)
            if p < k and not clock.is_over:
                continue
            left, values, right = basis.svd()
            # With J V = U B the residual is in what the next VJP adds (Paige and Saunders).
            beyond = 0.0 if basis.full else basis.look()
            residuals = (beyond * left[p, :k]).abs()
            converged = basis.full or (p >= k and bool((residuals <= tolerance * values[0]).all()))
            if converged or p >= max_steps:
                break
            if clock.is_over:
                clock.stop(f"in step {p} of at most {max_steps}")
                break
        frobenius = _frobenius(flat, basis, probes, confidence, generator, clock) if probes else None
    u, v = (torch.stack(part).T for part in (basis.u, basis.v))
    left_vectors, right_vectors = (u @ left[:, :k].to(u)).T, (v @ right[:, :k].to(v)).T
    return _result(flat, values[:k], left_vectors, right_vectors, residuals, converged, p, frobenius, clock)


def _frobenius(
    flat: Flat, basis: GolubKahan, probes: int, confidence: float, generator: torch.Generator, clock: _Clock
) -> JacobianNorm | None:
    """Return the Frobenius norm from the products so far and `probes` more; ``None`` if the time is over before."""
    moments, frame = Moments(flat.m), Frame(flat.m, probes, flat, generator)
    chunk = chunk_of(flat.products)
    while not basis.full and moments.count < min(probes, flat.m):
        if clock.is_over:
            return None
        moments.add(basis.outside(flat.rows(frame.take(min(chunk, probes - moments.count))))[:, None])
    mean, low, high = (float(p) for p in moments.estimate(confidence)) if moments.count else (0.0, 0.0, 0.0)
    method = "krylov" if moments.count else "exact"
    square = Square(basis.energy + mean, basis.energy + low, basis.energy + high, method)
    return jacobian_norm_of(flat, square, confidence, clock.begin)


def _not_finite(flat: Flat) -> BackprobeError:
    """Return the error for a Jacobian with NaN or Inf, which says which tensors hold such values."""
    y, x = flat.products.y, flat.products.x
    bad = [
        f"{name} holds {wrong:,} of {tensor.numel():,}"
        for name, tensor in [*y.items(), *x.items()]
        if (wrong := int((~torch.isfinite(tensor.detach())).sum()))
    ]
    kinds = sorted({str(tensor.dtype) for tensor in [*y.tensors, *x.tensors]})
    why = f"{', '.join(bad[:3])}; find where they come from first"
    if not bad:
        why = (
            f"y and x are finite, so a gradient on the way is not, or overflows {' or '.join(kinds)}; try a wider dtype"
        )
    return BackprobeError(
        f"the Jacobian of {y.names[0]} with respect to {x.names[0]} holds NaN or Inf and has no singular values: {why}"
    )


def _dense(flat: Flat, k: int, confidence: float, shown: bool | None, clock: _Clock, note: str) -> SpectralNorm:
    """Build the Jacobian from products with unit vectors, and decompose it; rows or columns that time leaves out are
    zero.
    :param note: why JVPs are not used; empty if they may be.
    """
    chunk = chunk_of(flat.products)
    right = flat.n < flat.m and not note
    if right:
        try:
            flat.products.transposed()
        except BackprobeError as error:
            if flat.products.missing or flat.m * flat.n > _MAX_DENSE_ELEMENTS:
                raise
            right, note = False, f"VJPs only: {first_sentence(error)}"
    side, size = (flat.products.x, flat.n) if right else (flat.products.y, flat.m)
    parts, done = [], 0
    with Progress(size, "singular values: dense Jacobian", shown) as progress:
        for _, cotangents in units(side.tensors, chunk):
            rows = torch.cat([c.reshape(len(c), -1).to(flat.device, flat.dtype) for c in cotangents], dim=1)
            parts.append(flat.columns(rows) if right else flat.rows(rows))
            done += len(rows)
            progress.advance(len(rows))
            if clock.is_over and done < size:
                clock.stop(f"with {done} of {size} {'columns' if right else 'rows'} of the Jacobian")
                parts.append(parts[0].new_zeros(size - done, parts[0].shape[1]))
                break
    whole = torch.cat(parts).T if right else torch.cat(parts)
    if not bool(torch.isfinite(whole).all()):
        raise _not_finite(flat)
    left, values, right_vectors = torch.linalg.svd(whole, full_matrices=False)
    total = square_of(whole)
    frobenius = (
        jacobian_norm_of(flat, Square(total, total, total, "exact"), confidence, clock.begin) if done == size else None
    )
    zeros = torch.zeros(k, dtype=torch.float64)
    vectors = left.T[:k], right_vectors[:k]
    return _result(flat, values[:k].double().cpu(), *vectors, zeros, done == size, 0, frobenius, clock, note)


def _result(
    flat: Flat,
    values: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    residuals: torch.Tensor,
    converged: bool,
    steps: int,
    frobenius: JacobianNorm | None,
    clock: _Clock,
    note: str = "",
) -> SpectralNorm:
    """Build the result from singular values, flat vectors and the cost so far."""
    return SpectralNorm(
        float(values[0]),
        values,
        [_shaped(flat.products.y, vector) for vector in left],
        [_shaped(flat.products.x, vector) for vector in right],
        residuals,
        converged,
        steps,
        (flat.m, flat.n),
        flat.products.vjp.count,
        flat.products.jvp.count,
        clock.seconds,
        frobenius,
        "; ".join(part for part in (note, clock.stopped_at) if part),
    )


def _shaped(named: Named, vector: torch.Tensor) -> Tree:
    """Return a flat vector as tensors in the structure of `named`."""
    parts = vector.split([t.numel() for t in named.tensors])
    return named.rebuild([p.reshape(t.shape) for p, t in zip(parts, named.tensors, strict=True)])
