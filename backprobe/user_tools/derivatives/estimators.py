"""Ways to the squared Frobenius norm of J by products with it.

Note [Estimates without bias]: Whatever a method learns about J to reduce variance (a basis) comes from random numbers
    other than the probes whose mean it takes, so the estimate of the square has no bias. In ``xnystrace`` each probe is
    judged with a basis made from all others.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

from .dense import units
from .flat import Flat, Frame
from .intervals import Moments, student_quantile
from .krylov import GolubKahan, NotFinite
from .progress import Progress

#: Number of bidiagonalization steps that, with twice as many probes, distinguish a flat spectrum from a steep one.
_LOOK = 4
#: Minimum share of the squared norm in those directions for which more steps pay off.
_STEEP = 0.1
#: The leave-one-out estimates of XNysTrace share all but one probe, so their spread is too small an error: by up to
#: this factor on spectra from flat to steep (96 x 128, 24 and 64 products, 400 draws each).
_SHARED = 1.7


@dataclass
class Square:
    """A squared Frobenius norm with its interval, and how it was got."""

    value: float
    low: float
    high: float
    method: str
    note: str = ""


def square_of(batch: torch.Tensor) -> float:
    """Return the sum of squares, accumulated in float64 (in float32 on devices without float64)."""
    wide = torch.float64 if batch.device.type != "mps" else torch.float32
    return float(torch.linalg.vector_norm(batch, dtype=wide)) ** 2


def exact(flat: Flat, chunk: int, right: bool, progress: Progress, seconds: float = float("inf")) -> Square | None:
    """Compute the sum over all rows (VJPs) or, if `right`, over all columns (JVPs).

    Return ``None`` as soon as it is clear that this would take longer than `seconds`.
    """
    products = flat.products
    side, batches = (products.x, products.jvp) if right else (products.y, products.vjp)
    if right:
        products.transposed()
    total, begin, whole = 0.0, time.perf_counter(), flat.n if right else flat.m
    for start, cotangents in units(side.tensors, chunk):
        found = batches.batch(cotangents)
        total += sum(square_of(part) for part in found)
        done = start + len(found[0])
        progress.advance(len(found[0]))
        if (time.perf_counter() - begin) * whole / done > seconds:
            return None
    return Square(total, total, total, "exact")


def hutchinson(
    flat: Flat, count: int, chunk: int, confidence: float, generator: torch.Generator, progress: Progress
) -> Square:
    """Estimate from the mean over `count` orthogonal probes of y (VJPs only)."""
    return _deflated(flat, None, count, chunk, confidence, generator, progress)


def krylov(
    flat: Flat, budget: int, chunk: int, confidence: float, generator: torch.Generator, progress: Progress
) -> Square:
    """Compute the part of the norm in a Golub-Kahan basis exactly, and estimate the rest by probes.

    Four steps and eight probes show how steep the spectrum is. If it is flat the remaining products are probes, else
    half of the budget goes into the basis.
    """
    try:
        basis = GolubKahan(flat, generator)
        _grow(basis, _LOOK, progress)
    except NotFinite:
        return Square(math.nan, math.nan, math.nan, "krylov")
    frame = Frame(flat.m, budget - 2 * _LOOK, flat, generator)
    first = flat.rows(frame.take(min(2 * _LOOK, budget - 2 * _LOOK)))
    progress.advance(len(first))
    rest = square_of(basis.outside(first)) / len(first)
    if basis.energy > _STEEP * (basis.energy + rest):
        _grow(basis, budget // 4, progress)
    count = budget - 2 * len(basis.v)
    return _deflated(flat, basis, count, chunk, confidence, generator, progress, frame, first)


def _grow(basis: GolubKahan, steps: int, progress: Progress) -> None:
    """Let the basis take steps until it has `steps` vectors, or no further direction exists."""
    while len(basis.v) < steps and not basis.full:
        basis.step()
        progress.advance(2)


def _deflated(
    flat: Flat,
    basis: GolubKahan | None,
    count: int,
    chunk: int,
    confidence: float,
    generator: torch.Generator,
    progress: Progress,
    frame: Frame | None = None,
    first: torch.Tensor | None = None,
) -> Square:
    """Estimate the squared norm: the part in `basis` exactly, the rest from the mean over `count` probes.
    :param basis: ``None``: all of it from probes.
    :param frame: the probes; ``None``: a new frame.
    :param first: products of probes that were taken from `frame` before.
    """
    frame = frame or Frame(flat.m, count, flat, generator)
    moments = Moments(flat.m)
    if first is not None:
        moments.add(_outside(basis, first)[:, None])
    while moments.count < min(count, flat.m):
        g = flat.rows(frame.take(min(chunk, count - moments.count)))
        moments.add(_outside(basis, g)[:, None])
        progress.advance(len(g))
    mean, low, high = (float(part) for part in moments.estimate(confidence))
    known = basis.energy if basis else 0.0
    return Square(known + mean, known + low, known + high, "krylov" if basis else "hutchinson")


def _outside(basis: GolubKahan | None, g: torch.Tensor) -> torch.Tensor:
    """Return the rows `g` without their part in the basis; unchanged without a basis."""
    return basis.outside(g) if basis else g


def xnystrace(
    flat: Flat, budget: int, chunk: int, confidence: float, generator: torch.Generator, progress: Progress
) -> Square:
    """XNysTrace of ``A = J J^T`` (Epperly, Tropp and Webber 2024): half VJPs, half JVPs.

    The Nystrom approximation of A from the probes W is ``J Q Q^T J^T`` with Q an orthonormal basis of ``J^T W``, so
    squares are never formed and no shift is needed. Probe i is judged with the basis of all others, which is Q without
    one direction. The error is the spread of these estimates, as in the paper, widened.
    """
    k = min(budget // 2, flat.m, flat.n)
    probes = torch.randn(k, flat.m, generator=generator, dtype=flat.dtype).to(flat.device)
    images = []
    for part in probes.split(chunk):
        images.append(flat.rows(part))
        progress.advance(len(part))
    q, r = torch.linalg.qr(torch.cat(images).T)
    r = r.double()
    diagonal = r.diagonal().abs()
    rank = int((diagonal > 100 * torch.finfo(flat.dtype).eps * diagonal.max()).sum())
    back = []
    for part in q.T.contiguous().split(chunk):
        back.append(flat.columns(part))
        progress.advance(len(part))
    w = torch.cat(back).double()
    held = float(w.square().sum())
    if rank < k:  # all of the range of J is in the basis
        return Square(held, held, held, "xnystrace", f"rank {rank}: the basis holds all of it")
    s, own = _left_out(r)
    _, alone = _left_out(torch.linalg.qr(probes.T.double())[1])
    each = held - (s.T @ w).square().sum(1) + own.square() * (flat.m - k + 1) / alone.square()
    value = max(held, float(each.mean()))
    half = _SHARED * student_quantile(confidence, k - 1) * float(each.std()) / k**0.5 if k > 1 else float("inf")
    return Square(value, max(held, value - half), value + half, "xnystrace")


def _left_out(r: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return, for each column of a triangular factor, the unit vector orthogonal to all other columns.

    Column i of the first result is that vector for column i of `r`; the second result is the component of column i
    along it.
    """
    s = torch.linalg.solve_triangular(r, torch.eye(len(r), dtype=r.dtype, device=r.device), upper=True).T
    s = s / torch.linalg.vector_norm(s, dim=0)
    return s, (s * r).sum(0)
