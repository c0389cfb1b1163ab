"""What nodes of a graph keep, and numbers of it."""

from __future__ import annotations

from typing import Any

import torch

from ...torch_internals import private
from .numbers import wide

#: Logits that are worked out again, about.
LOGITS = 1 << 18
#: What only gives values another shape.
_RESHAPES = (
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


def kept_by(node: Any, what: str) -> Any:
    """What `node` keeps by that name, where no hook of anybody's packed it and it can be looked at."""
    slot = private.saved_slot(node, what)
    if slot is None:
        return None
    value, packed = private.slot_content(slot) or (None, True)
    if packed or not isinstance(value, torch.Tensor) or not private.is_plain(value):
        return None
    return None if not value.is_cpu and private.hands_off(value) else value


def shaped(node: Any) -> Any:
    """What gave the values that `node` gives in another shape."""
    while node.name().startswith(_RESHAPES) and node.next_functions and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return node


def entropy(p: Any) -> Any:
    """The mean over rows, in nats."""
    p = wide(p)
    return -torch.special.xlogy(p, p).sum(-1).mean()


def product(q: Any, k: Any, factor: Any) -> Any:
    """The greatest element of the products of two batches of matrices, over as many of them as ``LOGITS`` allows."""
    each = q.shape[1] * k.shape[2]
    batch = max(1, LOGITS // max(each, 1))
    stride = max(1, -(-q.shape[0] // batch))
    logits = torch.bmm(wide(q[::stride]), wide(k[::stride]))
    return (logits * factor).amax()


def features(node: Any, result: Any) -> int:
    """The dimension of a result that its units lie along."""
    if result.dim() > 3:
        return 1
    before = node.next_functions[0][0]
    along = before is not None and before.name().startswith(("Convolution", "NativeBatchNorm", "CudnnBatchNorm"))
    return 1 if along and result.dim() == 3 else result.dim() - 1
