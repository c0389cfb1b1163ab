"""The dense Jacobian, and unit vectors to get it with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from ...basics.errors import BackprobeError
from ...basics.text import size
from .guard import Guard
from .named import Named, Tree, count
from .products import Products, Tensors
from .progress import Progress

#: Maximum number of cotangents in a batch, and of bytes for their gradients at both ends.
_CHUNK, _CHUNK_BYTES = 32, 256 << 20


def jacobian(
    y: Tree, x: Tree, *, max_bytes: int = 2 << 30, chunk: int | None = None, progress: bool | None = None
) -> Tree:
    """Return the dense Jacobian of `y` with respect to `x`.

    Rows come from batched VJPs, or columns from batched JVPs where x has less than half the elements of y and the graph
    allows it; one by one where batching fails.

    Args:
        y, x: as for :func:`vjp`.
        max_bytes: an error, before any work, if the result needs more than this.
        chunk: products at once. Default: up to 32, fewer for large tensors.
        progress: a bar on standard error; default: on a terminal, if the work is long.

    Returns:
        For one y and one x a tensor of shape ``y.shape + x.shape``; for several, the structure of `y` holding the
        structure of `x`. A pair that is not connected has zeros.

    Raises:
        BackprobeError: as :func:`vjp`; if the result is larger than `max_bytes`; if a tensor is complex;
            if `chunk` is no number of products.
    """
    products = Products(Named(y, "y"), Named(x, "x"))
    refuse_complex(products, "a dense Jacobian")
    ys, xs = products.y.tensors, products.x.tensors
    m, n = count(ys), count(xs)
    needed = m * sum(t.numel() * t.element_size() for t in xs)
    if needed > max_bytes:
        raise BackprobeError(
            f"the dense Jacobian is {m:,} x {n:,} and needs {size(needed)}, more than max_bytes "
            f"({size(max_bytes)}). Take bp.jacobian_norm, bp.spectral_norm or bp.linearize, which never build it, "
            "or raise max_bytes"
        )
    size_at_once = chunk_of(products, chunk)
    with Guard(ys, xs)(), Progress(m, "dense Jacobian", progress) as bar:
        products.vjp.single([torch.ones_like(t) for t in ys])  # is all of x reached?
        rows = [_dense(tensor, name, products.x, size_at_once, bar) for name, tensor in products.y.items()]
    return products.y.rebuild([products.x.rebuild(row) for row in rows])


def _dense(y: torch.Tensor, name: str, x: Named, chunk: int, progress: Progress) -> Tensors:
    """Return the Jacobian of one `y` by each of `x`, as a tensor of shape ``y.shape + x.shape`` for each."""
    products = Products(Named(y, name), x, unconnected=True)
    if 0 < 2 * count(x.tensors) < y.numel():
        # Fused attention and the like have VJPs only.
        with contextlib.suppress(BackprobeError):
            return _columns(products, y, x, chunk, progress)
    found = [torch.empty(y.numel(), *t.shape, dtype=t.dtype, device=t.device) for t in x.tensors]
    for start, cotangents in units([y], chunk):
        for whole, part in zip(found, products.vjp.batch(cotangents), strict=True):
            whole[start : start + len(part)] = part
        progress.advance(len(cotangents[0]))
    return [whole.reshape(y.shape + t.shape) for whole, t in zip(found, x.tensors, strict=True)]


def _columns(products: Products, y: torch.Tensor, x: Named, chunk: int, progress: Progress) -> Tensors:
    """Return the same as ``_dense``, computed from JVPs with unit vectors of `x`.
    :raises BackprobeError: the graph has no JVPs.
    """
    products.transposed()
    columns, whole_size, done = [], count(x.tensors), 0
    for start, directions in units(x.tensors, chunk):
        columns += [part.detach().reshape(len(part), -1) for part in products.jvp.batch(directions)]
        before, done = done, y.numel() * (start + len(directions[0])) // whole_size
        progress.advance(done - before)  # counted in rows
    whole = torch.cat(columns).T
    sizes = [t.numel() for t in x.tensors]
    parts = whole.split(sizes, dim=1)
    return [
        part.to(device=t.device, dtype=t.dtype).reshape(y.shape + t.shape)
        for part, t in zip(parts, x.tensors, strict=True)
    ]


def units(tensors: Tensors, chunk: int) -> Iterator[tuple[int, Tensors]]:
    """Yield the unit vectors of all elements of `tensors` in order, `chunk` at a time.

    Each item is the position of the first vector, and for each tensor its part, with a batch dimension in front.
    """
    total = count(tensors)
    for start in range(0, total, chunk):
        size = min(chunk, total - start)
        first = 0
        parts = []
        for t in tensors:
            part = torch.zeros(size, t.numel(), dtype=t.dtype, device=t.device)
            low, high = max(start, first), min(start + size, first + t.numel())
            if low < high:
                at = torch.arange(low, high, device=t.device)
                part[at - start, at - first] = 1
            parts.append(part.reshape(size, *t.shape))
            first += t.numel()
        yield start, parts


def chunk_of(products: Products, given: int | None = None) -> int:
    """Return the number of products in a batch: the given one, or as many as fit.

    Raises:
        BackprobeError: if that is no number of products.
    """
    if given is not None:
        return whole_number("chunk", given, 1)
    one = sum(t.numel() * t.element_size() for t in [*products.y.tensors, *products.x.tensors])
    return int(max(1, min(_CHUNK, _CHUNK_BYTES // max(1, 2 * one))))


def whole_number(name: str, value: object, least: int) -> int:
    """Return `value` unchanged; raise ``BackprobeError`` if it is no integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BackprobeError(f"{name}={value!r}: give a whole number, {least} or more")
    return value


def refuse_complex(products: Products, what: str) -> None:
    """Raise ``BackprobeError`` for complex tensors, where `what` has more than one meaning."""
    for name, tensor in [*products.y.items(), *products.x.items()]:
        if tensor.is_complex():
            raise BackprobeError(
                f"{name} is {tensor.dtype}: {what} of a function of complex numbers has more than one meaning. "
                "Differentiate between torch.view_as_real(...) of the tensors, used in the forward; bp.vjp and bp.jvp "
                "take complex tensors"
            )
