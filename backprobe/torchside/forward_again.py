"""The forward of an operation, computed again from what its node has kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Functions of the one tensor that their nodes keep, called as the nodes are.
_SAME = (
    *("Log", "Log2", "Log10", "Log1P", "Acos", "Asin", "Acosh", "Atanh"),
    *("Lgamma", "Digamma", "Erfinv", "Cosh", "Sinh"),
)


def _of_self(function: Callable[[Any], Any]) -> Callable[[Any, dict[str, Any]], Any]:
    return lambda node, kept: function(kept["self"])


def _variance(node: Any, kept: dict[str, Any]) -> Any:
    how = {"correction": node._saved_correction, "keepdim": node._saved_keepdim}
    return kept["self"].var(node._saved_dim, **how)


_AGAIN: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    **{name: _of_self(getattr(torch, name.lower())) for name in _SAME},
    "Div": lambda node, kept: kept["self"] / kept["other"],
    "Mul": lambda node, kept: kept["self"] * kept["other"],
    "Pow": lambda node, kept: kept["self"] ** kept.get("exponent", node._saved_exponent),
    "Logit": lambda node, kept: torch.logit(kept["self"], node._saved_eps),
    "Xlogy": lambda node, kept: torch.xlogy(kept["self"], kept["other"]),
    "Atan2": lambda node, kept: torch.atan2(kept["self"], kept["other"]),
    "Var": _variance,
}


def forward_again(operation: str, node: Any, kept: dict[str, Any]) -> Any:
    """What the forward of `node` gave; ``None`` where its formula is not one of a few, or something is not there.

    :param operation: the name of the node's class, without what follows ``Backward``.
    :param kept: tensors that it keeps, by name.
    """
    formula = _AGAIN.get(operation)
    if formula is None or not kept:
        return None
    try:
        with torch.autocast(next(iter(kept.values())).device.type, enabled=False):
            return formula(node, kept)
    except (RuntimeError, NotImplementedError, TypeError, AttributeError, ValueError, KeyError):
        return None
