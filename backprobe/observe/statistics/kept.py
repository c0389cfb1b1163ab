"""Reads saved tensors of graph nodes, and computes statistics of them."""

from __future__ import annotations

from typing import Any

import torch

from ...torch_internals import private
from .numbers import upcast

#: Approximate number of logits that are recomputed.
TARGET_LOGITS = 1 << 18
#: Prefixes of nodes that only change the shape or layout of values.
_RESHAPE_NODES = (
    "View",
    "UnsafeView",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Select",
    "Slice",
    "Permute",
    "Transpose",
    "Clone",
)


def saved_tensor(node: object, what: str) -> Any:
    """Return the saved tensor `what` of `node`; ``None`` if a saved-tensor hook packed it or it cannot be read."""
    slot = private.saved_slot(node, what)
    if slot is None:
        return None
    value, packed = private.slot_content(slot) or (None, True)
    if packed or not isinstance(value, torch.Tensor) or not private.is_plain(value):
        return None
    return None if not value.is_cpu and private.is_unsafe_to_read(value) else value


def node_before_reshapes(node: torch.autograd.graph.Node) -> Any:
    """Return the node that computed the values of `node`, past nodes that only change their shape."""
    while node.name().startswith(_RESHAPE_NODES) and node.next_functions and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return node


def entropy(p: object) -> torch.Tensor:
    """Return the mean entropy of the rows of `p`, in nats."""
    p = upcast(p)
    return -torch.special.xlogy(p, p).sum(-1).mean()


def max_product(q: torch.Tensor, k: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
    """Return the largest element of the batched products of `q` and `k`, times `factor`.

    Only evenly spaced batch elements are multiplied, about as many as ``TARGET_LOGITS`` elements of the result allow.
    """
    each = q.shape[1] * k.shape[2]
    batch = max(1, TARGET_LOGITS // max(each, 1))
    stride = max(1, -(-q.shape[0] // batch))
    logits = torch.bmm(upcast(q[::stride]), upcast(k[::stride]))
    return (logits * factor).amax()


def unit_dimension(node: torch.autograd.graph.Node, result: torch.Tensor) -> int:
    """Return the dimension of an activation's result along which its units lie."""
    if result.dim() > 3:
        return 1
    before = node.next_functions[0][0]
    along = before is not None and before.name().startswith(("Convolution", "NativeBatchNorm", "CudnnBatchNorm"))
    return 1 if along and result.dim() == 3 else result.dim() - 1
