"""Norms of blocks of a Jacobian: per sample, per token, or per index of any dimensions."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import torch

from ...basics.errors import BackprobeError
from .dense import chunk_of, refuse_complex
from .flat import Flat, Frame
from .guard import Guard
from .intervals import Moments
from .named import Named, Tree
from .products import Products
from .progress import Progress
from .results import BlockNorms

#: ``"sample"``, ``"token"``, or the dimensions of y and of x (a number or a tuple each).
Per = str | tuple[int | tuple[int, ...], int | tuple[int, ...]]
#: Default number of products of an estimate, and the minimum number of probes of one block by default.
DEFAULT_PRODUCTS, _MIN_BLOCK_PROBES = 64, 4


class _Side:
    """A tensor as [blocks, elements of a block] by some of its dimensions."""

    def __init__(self, tensor: torch.Tensor, dims: tuple[int, ...], name: str) -> None:
        """Divide `tensor` into one block for each index of the dimensions `dims`.
        :param name: ``y`` or ``x``, for the error message.
        :raises BackprobeError: the tensor lacks one of the dimensions.
        """
        rank = tensor.dim()
        if any(not -rank <= d < rank for d in dims) or len({d % rank for d in dims}) < len(dims):
            raise BackprobeError(f"per: {name} has shape {list(tensor.shape)}, which has no dimensions {list(dims)}")
        self.dims = tuple(d % rank for d in dims)
        self._order = [*self.dims, *(d for d in range(rank) if d not in self.dims)]
        self.tensor = tensor
        self.sizes = tuple(tensor.shape[d] for d in self.dims)
        self.blocks = math.prod(self.sizes)
        self.each = tensor.numel() // max(1, self.blocks)

    def apart(self, g: torch.Tensor) -> torch.Tensor:
        """Reshape [k, *shape] to [k, blocks, elements]."""
        return g.permute(0, *(d + 1 for d in self._order)).reshape(len(g), self.blocks, self.each)

    def together(self, c: torch.Tensor) -> torch.Tensor:
        """Reshape [k, blocks, elements] to [k, *shape], in the tensor's dtype and on its device."""
        c = c.reshape(len(c), *(self.tensor.shape[d] for d in self._order))
        back = sorted(range(len(self._order)), key=self._order.__getitem__)
        return c.permute(0, *(d + 1 for d in back)).to(self.tensor)


class _Job:
    """A Jacobian divided into blocks."""

    def __init__(self, y: Tree, x: Tree, per: Per, chunk: int | None) -> None:
        """Check the arguments of ``jacobian_norm(per=...)``, and divide y and x into blocks.
        :raises BackprobeError: they make no sense together.
        """
        self.products = Products(Named(y, "y"), Named(x, "x"))
        refuse_complex(self.products, "a Frobenius norm")
        if len(self.products.y.tensors) != 1 or len(self.products.x.tensors) != 1:
            raise BackprobeError("per: norms of blocks are for one y and one x; call it once for each pair")
        dims: tuple[int | tuple[int, ...], int | tuple[int, ...]]
        if per in ("sample", "token"):
            dims = (0, 0) if per == "sample" else (1, 1)
        elif isinstance(per, tuple) and len(per) == 2:
            dims = per
        else:
            raise BackprobeError(f"per={per!r}: give 'sample', 'token', or (dimensions of y, dimensions of x)")
        (y_dims, x_dims) = ((d,) if isinstance(d, int) else tuple(d) for d in dims)
        self.y = _Side(self.products.y.tensors[0], y_dims, "y")
        self.x = _Side(self.products.x.tensors[0], x_dims, "x")
        if per == "sample" and self.y.blocks != self.x.blocks:
            raise BackprobeError(
                f"per='sample': y has {self.y.blocks} samples (dimension 0) and x has {self.x.blocks}; they must agree"
            )
        self.chunk = chunk_of(self.products, chunk)
        self.flat = Flat(self.products)

    def pull(self, c: torch.Tensor) -> torch.Tensor:
        """Return the VJPs [k, x blocks, elements] of cotangents [k, y blocks, elements]."""
        return self.x.apart(self.products.vjp.batch([self.y.together(c)])[0])

    def zeros(self, k: int) -> torch.Tensor:
        """Return `k` cotangents of zeros, as [k, y blocks, elements]."""
        return torch.zeros(k, self.y.blocks, self.y.each, dtype=self.flat.dtype, device=self.flat.device)


def block_norms(
    y: Tree,
    x: Tree,
    per: Per,
    estimate: bool | None,
    products: int | None,
    max_seconds: float,
    confidence: float,
    generator: torch.Generator,
    chunk: int | None,
    shown: bool | None,
) -> BlockNorms:
    """Compute ``jacobian_norm(per=...)``.

    :param estimate: whether to estimate; ``None``: only if an exact result takes too long.
    """
    begin = time.perf_counter()
    job = _Job(y, x, per, chunk)
    note = ""
    if not job.y.tensor.numel() * job.x.tensor.numel():
        estimate = False  # nothing is there to draw probes for
    with Guard(job.products.y.tensors, job.products.x.tensors)():
        apart = per == "sample" and _independent(job, generator)
        if per == "sample" and not apart:
            note = "samples depend on each other (batch norm?): only the part within each is given"
        found = None
        # Samples apart share a pass: the same element of all of them at once.
        passes = job.y.each if apart else job.y.each * job.y.blocks
        if not estimate:
            limit = max_seconds if estimate is None and passes > (products or DEFAULT_PRODUCTS) else float("inf")
            with Progress(passes, "Jacobian block norms: rows", shown) as progress:
                found = _exact(job, apart, limit, progress)
        exact = found is not None
        if found is None:
            count = min(_probes(job, 1 if apart else job.y.blocks, products), job.y.each)
            total = count if apart else count * job.y.blocks
            with Progress(total, "Jacobian block norms: estimate", shown) as progress:
                found = _estimate(job, apart, count, confidence, generator, progress)
    value, low, high = (part.clamp(min=0).sqrt() for part in found)
    shape = job.y.sizes + job.x.sizes
    axes = f"d y[{list(job.y.dims)}] / d x[{list(job.x.dims)}]"
    if per == "sample":
        shape, axes = (job.y.blocks,), "d y[i] / d x[i] for each sample i"
        if not apart:
            value, low, high = (part.diagonal() for part in (value, low, high))
    value, low, high = (part.reshape(shape) for part in (value, low, high))
    seconds = time.perf_counter() - begin
    return BlockNorms(value, low, high, confidence, exact, axes, job.products.vjp.count, seconds, note)


def _probes(job: _Job, blocks: int, products: int | None) -> int:
    """Return the number of probes for each of `blocks` blocks that cannot share probes."""
    if products is None:
        return max(_MIN_BLOCK_PROBES, DEFAULT_PRODUCTS // blocks)
    if products < blocks:
        raise BackprobeError(
            f"products={products}: y has {blocks} blocks, and an estimate needs a product for each of them. Give "
            f"products={_MIN_BLOCK_PROBES * blocks}, leave it out, or ask for method='exact' "
            f"({job.y.tensor.numel()} products)"
        )
    return products // blocks


def _independent(job: _Job, generator: torch.Generator) -> bool:
    """Return whether no sample of y depends on another sample of x.

    For each bit of the sample number, cotangents on the samples that have the bit set (or not set) must give exactly
    zero at the other samples. Every pair of samples differs in some bit.
    """
    samples = torch.arange(job.y.blocks)
    sets = [((samples >> bit) & 1) == side for bit in range((job.y.blocks - 1).bit_length()) for side in (0, 1)]
    for start in range(0, len(sets), job.chunk):
        some = torch.stack(sets[start : start + job.chunk]).to(job.flat.device)
        c = torch.randn(len(some), job.y.blocks, job.y.each, generator=generator, dtype=job.flat.dtype)
        g = job.pull(c.to(job.flat.device) * some[:, :, None])
        if bool((g[~some] != 0).any()):
            return False
    return True


Found = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _exact(job: _Job, apart: bool, limit: float, progress: Progress) -> Found | None:
    """Return the squared norms, [y blocks, x blocks], or [samples] if `apart`; ``None`` after `limit` seconds."""
    begin, y = time.perf_counter(), job.y
    total = torch.zeros((y.blocks,) if apart else (y.blocks, job.x.blocks), dtype=torch.float64)
    whole = y.each if apart else y.each * y.blocks
    for start in range(0, whole, job.chunk):
        at = torch.arange(start, min(start + job.chunk, whole))
        c = job.zeros(len(at))
        rows = torch.arange(len(at))
        if apart:
            c[rows, :, at] = 1
        else:
            c[rows, at // y.each, at % y.each] = 1
        squares = job.pull(c).double().square().sum(2).cpu()
        if apart:
            total += squares.sum(0)
        else:
            total.index_add_(0, at // y.each, squares)
        progress.advance(len(at))
        if (time.perf_counter() - begin) * whole / (int(at[-1]) + 1) > limit:
            return None
    return total, total, total


def _estimate(
    job: _Job, apart: bool, count: int, confidence: float, generator: torch.Generator, progress: Progress
) -> Found:
    """Estimate the squared norms from random probes: `count` for all samples together if `apart`, else for each block.
    :returns: value, low and high end, as ``_exact`` returns them.
    """
    y = job.y
    if apart:
        moments = Moments(y.each)
        frames = [Frame(y.each, count, job.flat, generator) for _ in range(y.blocks)]
        for start in range(0, count, job.chunk):
            k = min(job.chunk, count - start)
            moments.add(job.pull(torch.stack([frame.take(k) for frame in frames], dim=1)))
            progress.advance(k)
        return moments.estimate(confidence)
    rows = [m.estimate(confidence) for m in _one_by_one(job, count, generator, progress)]
    value, low, high = (torch.stack(parts) for parts in zip(*rows, strict=True))
    return value, low, high


def _one_by_one(job: _Job, count: int, generator: torch.Generator, progress: Progress) -> Iterator[Moments]:
    """Yield the moments of each block of y, with as many blocks in one batch as fit."""
    at_once = max(1, job.chunk // count)
    for start in range(0, job.y.blocks, at_once):
        blocks = range(start, min(start + at_once, job.y.blocks))
        c = job.zeros(count * len(blocks))
        for i, block in enumerate(blocks):
            c[i * count : (i + 1) * count, block] = Frame(job.y.each, count, job.flat, generator).take(count)
        g = torch.cat([job.pull(part) for part in c.split(job.chunk)])
        for part in g.split(count):
            moments = Moments(job.y.each)
            moments.add(part)
            yield moments
        progress.advance(len(c))
