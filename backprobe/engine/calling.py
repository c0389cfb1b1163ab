"""Calls a node from Python, outside the engine.

Like the engine, it sums each outgoing gradient to the shape that the next node takes, and casts it to its dtype. Hooks
do not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..basics.errors import BackprobeError
from ..torch_internals.structure import expands_to
from .backward_graph import NodeInfo
from .double import Wide, widened


def call_node(
    node: Any, info: NodeInfo, grads: Sequence[torch.Tensor | None], wide: bool = False
) -> tuple[torch.Tensor | None, ...]:
    """Return the outgoing gradients of `node` for `grads`, one for each edge, as the engine passes them on; not cast if
    `wide`.
    """
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        result = node(*grads)
        return fitted(node, info, result if isinstance(result, (tuple, list)) else (result,), wide)
    if _materializes(node):
        # The engine does that for missing gradients.
        grads = [
            g if g is not None else torch.zeros(m.shape, dtype=m.dtype, device=m.device)
            for g, m in zip(grads, node._input_metadata, strict=True)
        ]
    result = node.apply(*grads)
    given = list(result) if isinstance(result, (tuple, list)) else [result]
    # It returns one gradient for each argument of its forward, including non-tensors; only tensors have an edge.
    following = node.next_functions
    needs = [k for k, need in enumerate(node.needs_input_grad) if need]
    edges = [k for k, (child, _) in enumerate(following) if child is not None]
    out: list[torch.Tensor | None] = [None] * len(following)
    for k, edge in zip(needs, edges, strict=True):
        if k >= len(given):
            raise BackprobeError(
                f"{info.label} gave {len(given)} gradients; its forward has {len(node.needs_input_grad)} arguments"
            )
        out[edge] = given[k]
    return fitted(node, info, out, wide)


def _materializes(node: object) -> bool:
    """Return whether missing gradients are replaced by zeros.

    ``set_materialize_grads(False)`` cannot be read back from a node, so this checks whether its class mentions it.
    """
    cls = getattr(node, "_forward_cls", None)
    for name in ("forward", "setup_context"):
        code = getattr(getattr(cls, name, None), "__code__", None)
        if code is not None and "set_materialize_grads" in code.co_names:
            return False
    return True


def call_node_wide(
    node: object, info: NodeInfo, grads: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor | None, ...]:
    """Return the outgoing gradients of `node` for `grads`, computed in float64.

    :raises BackprobeError: it is impossible, with the reason.
    """
    grads = tuple(widened(g) for g in grads)
    with Wide(node, info.label) as wide:
        out = call_node(node, info, grads, True)
    wide.check()
    return out


def fitted(
    node: torch.autograd.graph.Node, info: NodeInfo, grads: Sequence[torch.Tensor | None], wide: bool
) -> tuple[torch.Tensor | None, ...]:
    """Convert outgoing gradients as the engine does (``validate_outputs`` in torch's ``engine.cpp``); not cast if
    `wide`.
    """
    out = []
    for k, (grad, (following, number)) in enumerate(zip(grads, node.next_functions, strict=False)):
        if following is None or grad is None:
            out.append(grad)
            continue
        out.append(fitted_to(grad, following._input_metadata[number], f"Function {info.name} returned", k, wide))
    return tuple(out)


def fitted_to(grad: torch.Tensor, like: Any, who: str, k: int, wide: bool = False) -> torch.Tensor:
    """Convert one gradient to the shape and dtype that its destination takes.

    :raises RuntimeError: it does not fit, as the engine raises it.
    """
    shape = tuple(like.shape)  # a list
    if not grad.is_nested and not like.is_nested_tensor and tuple(grad.shape) != shape:
        if grad.layout is not torch.strided or not expands_to(shape, grad.shape):
            raise RuntimeError(
                f"{who} an invalid gradient at index {k} - got {list(grad.shape)} but expected shape compatible with "
                f"{list(shape)}"
            )
        grad = grad.sum_to_size(shape)
    if grad.is_complex() and not like.dtype.is_complex:
        grad = grad.real
    if grad.dtype != like.dtype and not wide:
        grad = grad.to(like.dtype)
    if grad.device != like.device and grad.dim() == 0:
        grad = grad.to(like.device)
    return grad
