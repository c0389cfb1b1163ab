"""The Frobenius norm of a Jacobian, exact where that is affordable and with a stated error elsewhere."""

from __future__ import annotations

import math
import time
from typing import Literal, overload

import torch

from ...basics.errors import BackprobeError
from . import estimators
from .blocks import DEFAULT_PRODUCTS, Per, block_norms
from .dense import chunk_of, refuse_complex, whole_number
from .estimators import Square
from .flat import Flat, generator_of
from .guard import Guard
from .named import Named, Tree, by_name
from .products import Products
from .progress import Progress
from .results import BlockNorms, JacobianNorm

Method = Literal["auto", "exact", "estimate", "hutchinson", "krylov", "xnystrace"]
_ESTIMATORS = {
    "hutchinson": estimators.hutchinson,
    "krylov": estimators.krylov,
    "xnystrace": estimators.xnystrace,
}
#: Minimum number of products for a method that builds a basis.
_MIN_BASIS_PRODUCTS = 20
#: x must be so much smaller than y for columns: a JVP costs 1.1 to 1.7 VJPs.
_JVP_COST = 1.5


@overload
def jacobian_norm(
    y: Tree,
    x: Tree,
    name: str | None = ...,
    *,
    per: None = None,
    method: Method = ...,
    products: int | None = ...,
    max_seconds: float = ...,
    confidence: float = ...,
    seed: int | torch.Generator = ...,
    chunk: int | None = ...,
    progress: bool | None = ...,
) -> JacobianNorm: ...


@overload
def jacobian_norm(
    y: Tree,
    x: Tree,
    name: str | None = ...,
    *,
    per: Per,
    method: Method = ...,
    products: int | None = ...,
    max_seconds: float = ...,
    confidence: float = ...,
    seed: int | torch.Generator = ...,
    chunk: int | None = ...,
    progress: bool | None = ...,
) -> BlockNorms: ...


def jacobian_norm(
    y: Tree,
    x: Tree,
    name: str | None = None,
    *,
    per: Per | None = None,
    method: Method = "auto",
    products: int | None = None,
    max_seconds: float = 10.0,
    confidence: float = 0.95,
    seed: int | torch.Generator = 0,
    chunk: int | None = None,
    progress: bool | None = None,
) -> JacobianNorm | BlockNorms:
    """Return the Frobenius norm of the Jacobian of `y` with respect to `x`, on the existing graph.

    It is the square root of the sum of squares of all ``d y_i / d x_j``. Several tensors count as one long vector. The
    graph, ``.grad`` and the global random state stay as they are.

    Args:
        y, x: as for :func:`backprobe.vjp`. Or a mapping of tensors, such as ``bp.capture`` gives, and two names in it,
            y's first: ``jacobian_norm(acts, "head", "embeddings")``.
        name: the name of x, if `y` is a mapping and `x` the name of y.
        per: norms of blocks in place of one. ``"sample"``: of ``d y[i] / d x[i]`` for each i of dimension 0 (where
            samples do not depend on each other, which is checked, they share passes). ``"token"``: of
            ``d y[:, i] / d x[:, j]`` for all i and j of dimension 1. Or (dimensions of y, dimensions of x), a number
            or a tuple each: the norms have the sizes of these dimensions and the rest is summed over.
        method: ``"exact"``: all rows by batched VJPs, or all columns by JVPs where x is smaller. ``"hutchinson"``:
            orthogonal probes, VJPs only. ``"krylov"``: the largest directions exactly, probes for the rest.
            ``"xnystrace"``: Epperly, Tropp and Webber 2024. ``"estimate"``: krylov where the graph allows JVPs, else
            hutchinson. ``"auto"`` (default): exact if that takes no more than `products` products or, going by its
            first ones, no more than `max_seconds`; else ``"estimate"``.
        products: maximum number of VJPs and JVPs of an estimate, not counting a few that check. Default: 64; with `per`
            4 for each block of y, if that is more. Each block needs a product of its own at least.
        max_seconds: how long ``"auto"`` may take for an exact result.
        confidence: probability that the interval of an estimate holds the true value.
        seed: a number, or a CPU generator, for the probes. The same seed gives the same estimate.
        chunk: products at once. Default: up to 32, fewer for large tensors.
        progress: a bar on standard error; default: on a terminal, if the work is long.

    Returns:
        A :class:`JacobianNorm`; with `per` a :class:`BlockNorms`, intervals for each block by itself.
        Sums are in float64 whatever the model's dtype.

    Raises:
        BackprobeError: as :func:`backprobe.vjp`; if a method needs JVPs that the graph does not allow; if a tensor is
            complex; if `products`, `chunk` or `confidence` make no sense.
        UnknownName: if a mapping has no tensor of a given name.
    """
    begin = time.perf_counter()
    y, x = by_name(y, x, name)
    if method not in ("auto", "exact", "estimate", *_ESTIMATORS):
        raise BackprobeError(
            f"method={method!r}: give 'auto', 'exact', 'estimate', {', '.join(map(repr, _ESTIMATORS))}"
        )
    budget = DEFAULT_PRODUCTS if products is None else products
    check_numbers(budget, confidence)
    generator = generator_of(seed)
    if per is not None:
        if method in ("krylov", "xnystrace"):
            raise BackprobeError(f"method={method!r} is for one norm; with per= give 'auto', 'exact' or 'estimate'")
        estimate = None if method == "auto" else method != "exact"
        return block_norms(y, x, per, estimate, products, max_seconds, confidence, generator, chunk, progress)
    flat = flat_jacobian(y, x, "a Frobenius norm")
    at_once = chunk_of(flat.products, chunk)
    if not flat.m * flat.n:
        method = "exact"  # nothing is there to draw probes for
    with Guard(flat.products.y.tensors, flat.products.x.tensors)():
        if method in ("auto", "exact"):
            limit = float("inf") if method == "exact" or min(flat.m, flat.n) <= budget else max_seconds
            square = _exact(flat, at_once, limit, progress)
        else:
            square = None
        if square is None:
            square = _estimate(flat, method, budget, at_once, confidence, generator, progress)
    return jacobian_norm_of(flat, square, confidence, begin)


def flat_jacobian(y: Tree, x: Tree, what: str) -> Flat:
    """Return the Jacobian of real tensors as a matrix."""
    products = Products(Named(y, "y"), Named(x, "x"))
    refuse_complex(products, what)
    return Flat(products)


def check_numbers(products: int, confidence: float) -> None:
    """Raise ``BackprobeError`` for a number of products below 2, or a confidence that is no probability."""
    if not 0 < confidence < 1:
        raise BackprobeError(f"confidence={confidence!r}: give a probability between 0 and 1, such as 0.95")
    whole_number("products", products, 2)


def first_sentence(error: BackprobeError) -> str:
    """Return the first sentence of an error message: the fact without the advice."""
    return str(error).split(". ")[0]


def _exact(flat: Flat, chunk: int, limit: float, shown: bool | None) -> Square | None:
    """Compute the squared norm exactly, by columns if x is much smaller than y, else by rows.
    :returns: ``None`` if that would take longer than `limit` seconds.
    """
    if flat.n * _JVP_COST < flat.m:
        try:
            with Progress(flat.n, "Jacobian norm: columns", shown) as progress:
                return estimators.exact(flat, chunk, True, progress, limit)
        except BackprobeError:
            if flat.products.missing:
                raise
            # No second derivative: by rows then.
    with Progress(flat.m, "Jacobian norm: rows", shown) as progress:
        return estimators.exact(flat, chunk, False, progress, limit)


def _estimate(
    flat: Flat,
    method: str,
    budget: int,
    chunk: int,
    confidence: float,
    generator: torch.Generator,
    shown: bool | None,
) -> Square:
    """Estimate the squared norm by `method`, or choose one that the graph and the budget allow.
    :raises BackprobeError: the method needs more products than `budget`, or JVPs that the graph does not have.
    """
    note = ""
    if method in ("auto", "estimate"):
        method = "krylov" if min(budget, flat.m, flat.n) >= _MIN_BASIS_PRODUCTS else "hutchinson"
        if method == "krylov":
            try:
                flat.products.transposed()
            except BackprobeError as error:
                if flat.products.missing:
                    raise
                method, note = "hutchinson", f"VJPs only: {first_sentence(error)}"
    elif method != "hutchinson" and budget < _MIN_BASIS_PRODUCTS:
        raise BackprobeError(f"method={method!r} with products={budget}: it needs {_MIN_BASIS_PRODUCTS} at least")
    with Progress(budget, "Jacobian norm: estimate", shown) as progress:
        square = _ESTIMATORS[method](flat, budget, chunk, confidence, generator, progress)
    square.note = "; ".join(filter(None, [square.note, note]))
    return square


def jacobian_norm_of(flat: Flat, square: Square, confidence: float, begin: float) -> JacobianNorm:
    """Build the result from an estimate of the squared norm: square roots, numbers of products, seconds, notes.

    :param begin: when the call began, on the clock of ``time.perf_counter``.
    """
    note = square.note
    if not math.isfinite(square.value):
        kinds = {str(t.dtype).removeprefix("torch.") for t in [*flat.products.y.tensors, *flat.products.x.tensors]}
        note = f"not finite: a gradient is, or it overflows {' or '.join(sorted(kinds))}"
    looped = flat.products.vjp.looped or flat.products.jvp.looped
    if looped:
        note = "; ".join(filter(None, [note, f"one by one, since batches fail ({looped})"]))
    value, low, high = (math.sqrt(part) if part >= 0 else math.nan for part in (square.value, square.low, square.high))
    if square.method != "exact":
        # What a basis holds is known up to rounding.
        slack = 4 * torch.finfo(flat.dtype).eps
        low, high = low * (1 - slack), high * (1 + slack)
    counts = flat.products.vjp.count, flat.products.jvp.count
    seconds = time.perf_counter() - begin
    return JacobianNorm(value, low, high, confidence, square.method, (flat.m, flat.n), *counts, seconds, note)
