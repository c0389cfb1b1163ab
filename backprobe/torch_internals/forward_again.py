"""Recomputes the forward of an op from the tensors that its node saved, or from the results of the nodes before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ops import names_of

#: Functions of the single tensor that their nodes save.
_OF_SAVED = (
    *(torch.log, torch.log2, torch.log10, torch.log1p, torch.acos, torch.asin, torch.acosh, torch.atanh),
    *(torch.lgamma, torch.digamma, torch.erfinv, torch.cosh, torch.sinh),
)
#: The largest result, in elements, that is recomputed from the results of other nodes.
MAX_RECOMPUTED_NUMEL = 1 << 26


def _of_self(function: Callable[[object], object]) -> Callable[[object, dict[str, object]], object]:
    """Return a formula that applies `function` to the tensor saved as ``self``."""
    return lambda node, kept: function(kept["self"])


def _variance(node: Any, kept: dict[str, Any]) -> torch.Tensor:
    """Recompute the result of ``var`` from its saved input."""
    how = {"correction": node._saved_correction, "keepdim": node._saved_keepdim}
    return kept["self"].var(node._saved_dim, **how)


_FORMULAS: dict[str, Callable[[Any, dict[str, Any]], object]] = {
    **{function.__name__: _of_self(function) for function in _OF_SAVED},
    "div": lambda node, kept: kept["self"] / kept["other"],
    "mul": lambda node, kept: kept["self"] * kept["other"],
    "pow": lambda node, kept: kept["self"] ** kept.get("exponent", node._saved_exponent),
    "logit": lambda node, kept: torch.logit(kept["self"], node._saved_eps),
    "xlogy": lambda node, kept: torch.xlogy(kept["self"], kept["other"]),
    "atan2": lambda node, kept: torch.atan2(kept["self"], kept["other"]),
    "var": _variance,
}


def forward_again(operation: str, node: object, kept: dict[str, object]) -> torch.Tensor | None:
    """Return the recomputed result of `node`; ``None`` if its formula is unknown, or a tensor is missing.

    :param operation: the name of the op in the operator table.
    :param kept: the tensors that the node saved, by name.
    """
    formula = _FORMULAS.get(operation)
    return _contained(lambda: formula(node, kept), kept.values()) if formula is not None and kept else None


def forward_from_inputs(
    operation: str, node: object, kept: dict[str, object], inputs: Sequence[object]
) -> torch.Tensor | None:
    """Compute the result of `node` from the results of the nodes before it; return ``None`` if that is not possible.

    :param kept: the tensors that the node saved, by name.
    :param inputs: for each edge, the tensor that went in there, or ``None`` if it is not known.
    """
    formula = _FROM_INPUTS.get(operation)
    shape, dtype = result_of(node)
    if formula is None or shape is None or dtype is None or shape.numel() > MAX_RECOMPUTED_NUMEL:
        return None
    known = [t for t in (*inputs, *kept.values()) if isinstance(t, torch.Tensor)]
    result = _contained(lambda: formula(node, _Given(kept, inputs, shape, dtype)), known) if known else None
    if result is None or result.shape != shape:
        return None
    return result if result.dtype == dtype else result.to(dtype)


def result_of(node: object) -> tuple[torch.Size | None, torch.dtype | None]:
    """Return the shape and dtype of the first result of `node`; ``None`` if torch does not provide them."""
    metadata = getattr(node, "_input_metadata", None)
    if not metadata or not all(isinstance(size, int) for size in metadata[0].shape):
        return None, None
    return torch.Size(metadata[0].shape), metadata[0].dtype


def raises_to_natural_number(node: object) -> bool:
    """Return whether a power's node has a natural exponent, so that finite values stay finite except for overflow."""
    exponent = getattr(node, "_saved_exponent", None)
    return isinstance(exponent, int) and exponent >= 0


class _Given:
    """The inputs of a node, and the shape and dtype of its result."""

    def __init__(self, kept: dict[str, Any], inputs: Sequence[Any], shape: torch.Size, dtype: torch.dtype) -> None:
        """Take the saved tensors by name, the input at each edge (``None``: not known), and the result's shape and
        dtype.
        """
        self._kept, self._inputs, self.shape, self.dtype = kept, inputs, shape, dtype

    def __call__(self, edge: int, name: str = "") -> torch.Tensor:
        """Return the input at `edge`, which the node may have saved as `name`; raise ``KeyError`` if it is unknown."""
        if name and self._kept.get(name) is not None:
            return self._kept[name]
        value = self._inputs[edge]
        if value is None:
            raise KeyError(name or edge)
        return value


def _dims(given: object) -> Any:
    """Return dimensions as signed numbers: nodes save negative ones as unsigned."""
    if isinstance(given, tuple):
        return tuple(_dims(one) for one in given)
    return given - (1 << 64) if isinstance(given, int) and given >= 1 << 63 else given


def _reduced(function: Callable[..., object]) -> Callable[[torch.autograd.graph.Node, _Given], object]:
    """Return a formula for a reduction, of all elements or along the dimensions that the node saved."""

    def reduce(node: torch.autograd.graph.Node, given: _Given) -> object:
        """Recompute the result of the reduction `node`."""
        dim = getattr(node, "_saved_dim", None)
        return function(given(0)) if dim is None else function(given(0), _dims(dim), node._saved_keepdim)

    return reduce


def _chosen(node: torch.autograd.graph.Node, given: _Given) -> torch.Tensor:
    """Recompute the result of ``max`` or ``min`` along a dimension."""
    dim = getattr(node, "_saved_dim", None)
    if dim is None:
        raise KeyError("dim")
    indices = given(1, "indices")
    indices = indices if node._saved_keepdim else indices.unsqueeze(_dims(dim))
    return given(0).gather(_dims(dim), indices).reshape(given.shape)


def _same_values(node: object, given: _Given) -> torch.Tensor:
    """Recompute the result of an op that changes only the shape."""
    return given(0).reshape(given.shape)


_FROM_INPUTS: dict[str, Callable[[Any, _Given], object]] = {
    "add": lambda node, given: given(0) + node._saved_alpha * given(1),
    "sub": lambda node, given: given(0) - node._saved_alpha * given(1),
    "mul": lambda node, given: given(0, "self") * given(1, "other"),
    "div": lambda node, given: given(0, "self") / given(1, "other"),
    "pow": lambda node, given: given(0, "self") ** node._saved_exponent,
    "neg": lambda node, given: -given(0),
    "rsub": lambda node, given: -given(0),
    "abs": lambda node, given: given(0, "self").abs(),
    "sqrt": lambda node, given: given(0).sqrt(),
    "exp": lambda node, given: given(0).exp(),
    "log": lambda node, given: given(0, "self").log(),
    "softmax": lambda node, given: given(0).softmax(_dims(node._saved_dim)),
    "log_softmax": lambda node, given: given(0).log_softmax(_dims(node._saved_dim)),
    "to": lambda node, given: given(0).to(given.dtype),
    "sum": _reduced(torch.sum),
    "mean": _reduced(torch.mean),
    "max": _chosen,
    "min": _chosen,
    "addmm": lambda node, given: torch.addmm(
        given(0), given(1, "mat1"), given(2, "mat2"), beta=node._saved_beta, alpha=node._saved_alpha
    ),
    "mm": lambda node, given: given(0, "self") @ given(1, "mat2"),
    "bmm": lambda node, given: given(0, "self") @ given(1, "mat2"),
    "t": lambda node, given: given(0).t(),
    "transpose": lambda node, given: given(0).transpose(_dims(node._saved_dim0), _dims(node._saved_dim1)),
    "expand": lambda node, given: given(0).expand(given.shape),
    **dict.fromkeys(names_of(lambda row: row.changes_shape) | {"clone", "alias"}, _same_values),
}


def _contained(formula: Callable[[], object], tensors: Any) -> torch.Tensor | None:
    """Return the result of `formula`, computed without autocast; ``None`` if it raises.
    :param tensors: the tensors that it uses; the first one's device is that of the autocast.
    """
    try:
        with torch.autocast(next(iter(tensors)).device.type, enabled=False):
            return formula()
    except (RuntimeError, NotImplementedError, TypeError, AttributeError, ValueError, KeyError, IndexError):
        return None
