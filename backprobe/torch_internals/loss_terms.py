"""Reads from an autograd graph which terms a loss is the weighted sum of."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from ..ops import canonical, info
from .saved_by_nodes import class_targets, saved_tensors

#: Maximum number of nodes that are visited.
MAX_NODES = 200
#: Maximum number of elements of a mask, or of targets, that are counted.
MAX_COUNTED = 1 << 20


class Term(NamedTuple):
    """A node on whose result a loss depends linearly. It is itself no sum, mean, scaling or reshape.

    :ivar number: which result of the node it is.
    :ivar weight: the derivative of the loss by each element of the result.
    """

    node: Any
    number: int
    weight: float


class Path(NamedTuple):
    """A way from a loss down to a node on whose result it depends linearly, as in ``Term``.

    :ivar number: which result of the node it is.
    :ivar weight: the derivative of the loss by each element of the result, along this way.
    :ivar scalings: the nodes on the way that multiply or divide a single number by a constant, with the factor.
    :ivar averaged: over how many elements the ``mean`` nodes on the way average.
    """

    node: Any
    number: int
    weight: float
    scalings: tuple[tuple[Any, float], ...] = ()
    averaged: int = 1


class Share(NamedTuple):
    """How a loss counts the elements of a term.

    :ivar is_mean: the node itself, or a ``mean`` after it, averages them all. Then ``weight`` is that of the mean.
    :ivar weight: otherwise, the weight of each element; without its sign.
    :ivar elements: how many elements count: those that are not ignored, or the sum of what they are multiplied by, such
        as a mask; ``samples``: the size of their first dimension.
    """

    is_mean: bool
    weight: float
    elements: float
    samples: int

    @property
    def sums(self) -> tuple[float, float]:
        """The weights of all elements, and of one element of each sample."""
        return self.weight * self.elements, self.weight * self.samples


class NormalDivergence(NamedTuple):
    """The divergence of normal distributions from the standard normal, as a part of a loss.

    :ivar weight: the derivative of the loss by the divergence of one element.
    :ivar squares: the term that sums squared means; ``nodes``: the nodes of all terms of the divergence.
    :ivar means, variances: of the distributions, of one shape.
    """

    weight: float
    squares: Term
    nodes: frozenset[Any]
    means: torch.Tensor
    variances: torch.Tensor


class Scale(NamedTuple):
    """A node that multiplies a term of a loss by a number."""

    node: Any
    factor: float


class Comparison(NamedTuple):
    """An operation that compares results with targets.

    :ivar elements: the number of its targets; ``weight``: the weight of the error of each in the loss.
    """

    op: str
    elements: int
    weight: float


def terms_of(root: object) -> list[Term]:
    """Return the terms of the loss that node `root` made; a term that is added several times has one weight.

    Elements of a result that get different weights, by a mask or a product with a tensor, end the search there: the
    product is a term.
    """
    weights: dict[tuple[Any, int], float] = {}
    for path in paths_of(root):
        weights[path.node, path.number] = weights.get((path.node, path.number), 0.0) + path.weight
    return [Term(node, number, weight) for (node, number), weight in weights.items()]


def paths_of(root: object) -> list[Path]:
    """Return the ways from the loss that node `root` made to its terms; empty if there are too many nodes."""
    found: list[Path] = []
    open_: list[Path] = [Path(root, 0, 1.0)]
    for visited in range(MAX_NODES):
        if visited == len(open_):
            break
        path = open_[visited]
        parts = _parts(path.node)
        if parts is None:
            found.append(path)
            continue
        name = canonical(path.node.name())
        scales = name in ("mul", "div") and _elements(path.node, 0) == 1
        averaged = path.averaged * (averaged_elements(path.node) if name == "mean" else 1)
        for child, at, factor in parts:
            scalings = (*path.scalings, (path.node, factor)) if scales else path.scalings
            open_.append(Path(child, at, path.weight * factor, scalings, averaged))
    else:
        return []
    return found


def scales_of(root: object, term: Term) -> list[Scale]:
    """Return what multiplies a term of the loss that node `root` made by a number, the outermost first.

    If the term is added several times, only one way to it counts.
    """
    way: dict[Any, Any] = {root: None}
    open_ = [root]
    for node in open_:
        if node is term.node or len(open_) > MAX_NODES:
            break
        for child, _, _ in _parts(node) or ():
            if child not in way:
                way[child] = node
                open_.append(child)
    nodes: list[Any] = []
    node = term.node if term.node in way else None
    while node is not None:
        nodes.insert(0, node)
        node = way[node]
    found = (node for node in nodes[:-1] if canonical(node.name()) in ("mul", "div"))
    return [Scale(node, _parts(node)[0][2]) for node in found]  # type: ignore[index]


def _parts(node: Any) -> list[tuple[Any, int, float]] | None:
    """Return the nodes whose results a node adds up, with their factors; ``None`` if it does something else.

    An element that broadcasts counts as often as it is added.
    """
    name = canonical(node.name())
    edges = [(child, at, k) for k, (child, at) in enumerate(node.next_functions) if child is not None]
    if name in ("sum", "mean"):
        count = averaged_elements(node) if name == "mean" else 1
        return [(child, at, 1 / count) for child, at, _ in edges] if count else None
    own, parts = _elements(node, 0), []
    for child, at, k in edges:
        factor, given = _factor(node, name, k, len(edges)), _elements(child, at)
        if factor is None or not given or own % given:
            return None
        parts.append((child, at, factor * (own // given)))
    return parts or None


def _factor(node: Any, name: str, k: int, inputs: int) -> float | None:
    """Return by what an elementwise node multiplies its input number `k`; ``None`` if it does something else.

    :param inputs: how many inputs have a graph.
    """
    if info(node.name()).reshapes or name == "neg":
        return -1.0 if name == "neg" else 1.0
    alpha = float(getattr(node, "_saved_alpha", 1))
    summands = {"add": (1.0, alpha), "sub": (1.0, -alpha), "rsub": (-alpha, 1.0)}
    if name in summands:
        return summands[name][k]
    if name not in ("mul", "div") or inputs > 1 or (name == "div" and k):
        return None
    constant = _constant(node, "self" if k else "other")
    if name == "mul" or constant is None:
        return constant
    return 1 / constant if constant else None


def _elements(node: Any, number: int) -> int:
    """Return the number of elements of a result of a node; 0 if it has no shape."""
    metadata = node._input_metadata[number]
    return 0 if metadata.is_nested_tensor else math.prod(metadata.shape)


def averaged_elements(node: Any) -> int:
    """Return over how many elements a ``mean`` node averages; 0 if it does not say."""
    shape, dims = getattr(node, "_saved_self_sym_sizes", None), getattr(node, "_saved_dim", None)
    if not isinstance(shape, tuple):
        return 0
    if not isinstance(dims, tuple) or not dims:
        return math.prod(shape)
    return math.prod(shape[(dim if dim < 1 << 63 else dim - (1 << 64)) % len(shape)] for dim in dims) if shape else 1


def _constant(node: Any, name: str) -> float | None:
    """Return the number that a node multiplies or divides by: a tensor, or a number that C++ code of torch gave."""
    if not hasattr(node, f"_raw_saved_{name}"):
        number = getattr(node, f"_saved_{name}", None)
        return float(number) if isinstance(number, (int, float)) else None
    value = next((tensor for saved, tensor in saved_tensors(node) if saved == name), None)
    if value is None or value.numel() != 1 or not value.is_cpu or value.requires_grad:
        return None
    return float(value)


def normal_divergence(terms: list[Term]) -> NormalDivergence | None:
    """Return the first divergence of normal distributions from the standard normal among the terms of a loss.

    It is the sum of ``(m^2 + s^2 - 1 - log s^2) / 2`` (Kingma and Welling 2014, appendix B): the squares of means and
    deviations, or the means squared and an exponential, have one weight, and the logarithm its negative.
    """
    squares = [(term, value) for term in terms if (value := _squared(term.node)) is not None and term.weight > 0]
    for term, mean in squares:
        for other in terms:
            if other.node is term.node or not math.isclose(other.weight, term.weight, rel_tol=1e-3):
                continue
            variance = _variance(other, terms)
            if variance is not None and variance.shape == mean.shape and mean.dim() > 1:
                nodes = frozenset((term.node, other.node))
                return NormalDivergence(2 * term.weight, term, nodes, mean, variance)
    return None


def _squared(node: Any) -> torch.Tensor | None:
    """Return the tensor whose square node `node` computes, from what it saved; ``None`` if it computes no square."""
    saved, name = dict(saved_tensors(node)), canonical(node.name())
    if name == "mul" and len(saved) == 2 and len({edge for edge in node.next_functions if edge[0] is not None}) == 1:
        return saved.get("self") if saved["self"].shape == saved["other"].shape else None
    is_square = name == "pow" and getattr(node, "_saved_exponent", None) == 2
    return saved.get("self") if is_square else None


def _variance(term: Term, terms: list[Term]) -> torch.Tensor | None:
    """Return the variances, if `term` is their sum and their logarithm is subtracted with the same weight."""
    node, saved = term.node, dict(saved_tensors(term.node))
    opposite = [other for other in terms if math.isclose(other.weight, -term.weight, rel_tol=1e-3)]
    if canonical(node.name()) == "exp":
        given = node.next_functions[0]
        return saved.get("result") if any((other.node, other.number) == given for other in opposite) else None
    deviation = _squared(node)
    if deviation is None:
        return None
    logs = (other.node for other in opposite if canonical(other.node.name()) == "log")
    return deviation.square() if any(one.next_functions[0][0] is node for one in logs) else None


def comparison_of(term: Term) -> Comparison | None:
    """Return what a term compares; ``None`` if it is no loss function and no square of a difference."""
    node, saved = term.node, dict(saved_tensors(term.node))
    given, name = saved.get("self"), canonical(node.name())
    reduction = getattr(node, "_saved_reduction", None)
    if given is None or term.weight <= 0:
        return None
    if isinstance(reduction, int):
        elements = saved["target"].numel() if "target" in saved else given.numel()
        return Comparison(name, elements, term.weight / (elements if reduction == 1 else 1))
    return Comparison(name, given.numel(), term.weight) if name == "pow" and given.dim() > 1 else None


def share_of(path: Path, scale: float = 1.0) -> Share | None:
    """Return how a loss counts the elements of the term at the end of `path`.

    ``None`` if the term is a single number, and its node does not say what it is of.

    :param scale: a factor of the loss that is divided out.
    """
    node, weight = path.node, abs(path.weight / scale)
    reduction, elements = getattr(node, "_saved_reduction", None), _elements(node, path.number)
    if reduction == 1 or (elements > 1 and path.averaged == elements):
        return Share(True, weight * elements, 1, 1)
    saved = dict(saved_tensors(node))
    if isinstance(reduction, int):
        target = saved.get("target", saved.get("self"))
        if target is None:
            return None
        counted = target.numel()
        if hasattr(node, "_saved_ignore_index") and target.is_cpu and counted <= MAX_COUNTED:
            counted = int((target != class_targets(node)[1]).sum())
        return Share(False, weight, counted, len(target) if target.dim() else 1)
    if elements < 2:
        return None
    mask = saved.get("other", saved.get("self")) if canonical(node.name()) == "mul" and len(saved) == 1 else None
    sum_of_factors: float = elements
    if mask is not None and mask.is_cpu and mask.numel() == elements <= MAX_COUNTED:
        sum_of_factors = float(mask.sum())
    return Share(False, weight, sum_of_factors, node._input_metadata[path.number].shape[0])
