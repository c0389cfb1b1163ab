"""Which choices in a graph are those of a router of experts, and how loaded its experts are.

Note [What a router is]: a layer of experts scores them by a product with a weight, takes the first few of each row, and
multiplies what these put out by what the scores became. A ``topk``, a ``max`` along a dimension, or a ``gather`` of
several is a router's where all of that holds:

- it chooses along the last dimension, from 2 to 1,024, and not all of them;
- what it chooses from is a product whose right factor is a parameter, and keeps its last dimension on the way;
- there is a softmax or a sigmoid before it or behind it;
- what was chosen is multiplied by something that has a gradient of its own, or goes into a custom function.

So neighbours by distance or by queries and keys are none (the product is of two activations), nor are positions that
are chosen by a score of each (another dimension), nor words of a vocabulary (their scores go into a loss or out of the
model, and multiply nothing). A router that takes the greatest without a gradient (``argmax``, a mask) has no node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ...torch_internals import private

#: Experts that a router chooses from, at least and at most.
FEWEST, MOST = 2, 1024
#: By the name of a node that chooses, what it keeps of its choice.
CHOICES = {"TopkBackward0": "indices", "MaxBackward0": "indices", "GatherBackward0": "index"}
_PROBABLE = ("Softmax", "Sigmoid")
_PRODUCTS = ("AddmmBackward", "MmBackward", "BmmBackward", "BaddbmmBackward", "LinearBackward")
#: What leaves each row's scores where they are; what gives a weight as it is; and what a choice goes through.
_ROWS = ("View", "UnsafeView", "Reshape", "ToCopy", "Clone", "Add", "Sub", "Mul", "Div", "MaskedFill", "Where")
_WEIGHT = ("T", "Transpose", "Permute", "ToCopy", "View", "Div")
_ON = (
    *("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Split", "Unbind", "Index"),
    *("Permute", "Transpose", "T", "Clone", "ToCopy", "Expand", "Repeat", "AsStrided", "CopySlices", "Scatter"),
    *("Sum", "Add", "Div", "Mul", "MaskedFill", "Where", "Gather", "Exp", "Sub", *_PROBABLE),
)
#: Nodes from a choice to the product before it, from that to its weight, and around it to where it is used.
_BEFORE, _TO_WEIGHT, _AROUND = 16, 5, 96
Saved = Callable[[Any, str], Any]


class Routers:
    """The choices among the nodes of a graph.

    :param nodes: of the graph, all that are looked at.
    :param saved: gives what a node keeps by a name, where that may be looked at.
    """

    def __init__(self, nodes: Sequence[Any], saved: Saved) -> None:
        self._saved = saved
        self._users: dict[Any, list[Any]] = {}
        for node in nodes:
            for child, _ in node.next_functions:
                if child is not None:
                    self._users.setdefault(child, []).append(node)

    def choice(self, node: Any) -> tuple[Any, int] | None:
        """Of a node in ``CHOICES``: the experts that were chosen, and of how many; ``None`` where it is no router's."""
        kind = node.name()
        chosen = self._saved(node, CHOICES[kind])
        if chosen is None or not chosen.numel():
            return None
        if kind == "GatherBackward0":
            scores = self._saved(node, "self")
            shape = tuple(scores.shape) if scores is not None else ()
            dim = len(shape) - 1
            if not shape or chosen.shape[:-1] != shape[:-1] or not chosen.shape[-1] > 1:
                return None  # of one a row, it takes the score of a label or an action
        else:
            dim, shape = private.chosen_from(node) or (0, ())
        if len(shape) < 2 or dim != len(shape) - 1 or not FEWEST <= shape[-1] <= MOST:
            return None
        if kind != "MaxBackward0" and chosen.shape[-1] >= shape[-1]:
            return None
        probable = self._from_a_product(node, shape[-1])
        return (chosen, shape[-1]) if probable is not None and self._weighs(node, probable) else None

    def _from_a_product(self, node: Any, experts: int) -> bool | None:
        """Whether the scores are probabilities; ``None`` where they are not of a product with a weight."""
        probable = False
        for _ in range(_BEFORE):
            node = next((child for child, _ in node.next_functions if child is not None), None)
            if node is None:
                return None
            kind = node.name()
            if kind.startswith(_PRODUCTS):
                return probable if self._by_a_weight(node, kind) else None
            if kind.startswith(_PROBABLE):
                probable = True
            elif not kind.startswith(_ROWS):
                return None
            elif kind.startswith(("View", "UnsafeView", "Reshape")):
                shape = private.shape_before(node)
                if shape is None or not shape or shape[-1] != experts:
                    return None
        return None

    def _by_a_weight(self, product: Any, kind: str) -> bool:
        """Whether the right factor is a parameter, as it is, in another dtype, or divided by its norm."""
        after = product.next_functions
        at = 1 if kind.startswith(("MmB", "BmmB", "LinearB")) else 2
        node = after[at][0] if len(after) > at else None
        if node is None:  # it has no gradient
            right = self._saved(product, "weight" if kind.startswith("LinearB") else "mat2")
            return right is not None and isinstance(right if right._base is None else right._base, nn.Parameter)
        for _ in range(_TO_WEIGHT):
            if not node.next_functions:
                return hasattr(node, "variable")
            if not node.name().startswith(_WEIGHT) or node.next_functions[0][0] is None:
                return False
            node = node.next_functions[0][0]
        return False

    def _weighs(self, node: Any, probable: bool) -> bool:
        """Whether what was chosen, once it is probable, is a factor of something that has a gradient of its own."""
        seen = {(node, probable)}
        waiting = [(node, probable)]
        for here, likely in waiting:  # grows as we go
            for user in self._users.get(here, ()):
                kind = user.name()
                others = [child for child, _ in user.next_functions if child is not None and child is not here]
                custom = isinstance(user, torch.autograd.function.BackwardCFunction)
                if likely and (custom or (others and kind.startswith(("Mul", *_PRODUCTS)))):
                    return True
                if not kind.startswith(_ON) or len(seen) >= _AROUND:
                    continue
                state = user, likely or kind.startswith(_PROBABLE)
                if state not in seen:
                    seen.add(state)
                    waiting.append(state)
        return False


def load(chosen: Any, experts: int) -> tuple[Any, Any]:
    """The share of the choices that go to the most loaded expert, times the number of experts; and the share of experts
    that nothing goes to. Both stay on the device."""
    flat = chosen.reshape(-1)
    counts = torch.zeros(experts, dtype=torch.int64, device=flat.device)
    counts.scatter_add_(0, flat, torch.ones_like(flat))
    return counts.amax() * (experts / flat.numel()), (counts == 0).float().mean()
