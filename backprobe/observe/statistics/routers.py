"""Detects which choices in a graph are made by routers of a mixture of experts, and measures the load of the experts.

Note [Router detection]: a mixture-of-experts layer scores its experts by a product with a weight, chooses the top few
for each row, and multiplies their outputs by a function of the scores. A ``topk``, a ``max`` along a dimension, or a
``gather`` of several elements belongs to a router if all of these hold:

- it chooses along the last dimension, of size 2 to 1,024, and not all elements;
- its input comes from a matrix product whose right factor is a parameter, and the last dimension is kept on the way;
- there is a softmax or a sigmoid before or after it;
- the chosen values are multiplied by something that has a gradient of its own, or enter a custom function.

So three things do not count as routers: neighbors by distance or by query-key score (the product is of two
activations); positions that are chosen by one score each (another dimension); and tokens of a vocabulary (their scores
enter a loss or leave the model, and multiply nothing). A router that takes the maximum without a gradient (``argmax``,
a mask) has no node and is not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ...torch_internals import private

#: Minimum and maximum number of experts of a router.
MIN_EXPERTS, MAX_EXPERTS = 2, 1024
#: By name of a choosing node: its saved tensor that holds the chosen indices.
CHOICE_TENSORS = {"TopkBackward0": "indices", "MaxBackward0": "indices", "GatherBackward0": "index"}
_PROBABILITY_NODES = ("Softmax", "Sigmoid")
_PRODUCT_NODES = ("AddmmBackward", "MmBackward", "BmmBackward", "BaddbmmBackward", "LinearBackward")
#: Prefixes of nodes that keep the scores of a row in place; that pass a weight on; and that pass chosen values on.
_SCORE_NODES = ("View", "UnsafeView", "Reshape", "ToCopy", "Clone", "Add", "Sub", "Mul", "Div", "MaskedFill", "Where")
_WEIGHT_NODES = ("T", "Transpose", "Permute", "ToCopy", "View", "Div")
_PASS_THROUGH_NODES = (
    *("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Split", "Unbind", "Index"),
    *("Permute", "Transpose", "T", "Clone", "ToCopy", "Expand", "Repeat", "AsStrided", "CopySlices", "Scatter"),
    *("Sum", "Add", "Div", "Mul", "MaskedFill", "Where", "Gather", "Exp", "Sub", *_PROBABILITY_NODES),
)
#: Maximum number of nodes from a choice back to the product, from the product to its weight, and visited after the
#: choice.
_MAX_NODES_TO_PRODUCT, _MAX_NODES_TO_WEIGHT, _MAX_NODES_AFTER_CHOICE = 16, 5, 96
Saved = Callable[[Any, str], Any]


class Routers:
    """Finder of the choices that routers make among the nodes of a graph.

    :param nodes: the visited nodes of the graph.
    :param saved: returns a saved tensor of a node by name; ``None`` if it cannot be read.
    """

    def __init__(self, nodes: Sequence[torch.autograd.graph.Node], saved: Saved) -> None:
        """Index the nodes of a graph by the node whose result they use."""
        self._saved = saved
        self._users: dict[object, list[torch.autograd.graph.Node]] = {}
        for node in nodes:
            for child, _ in node.next_functions:
                if child is not None:
                    self._users.setdefault(child, []).append(node)

    def choice(self, node: torch.autograd.graph.Node) -> tuple[torch.Tensor, int] | None:
        """Return the chosen experts and the number of experts for a router's node; ``None`` for another node.

        :param node: a node whose name is in ``CHOICE_TENSORS``.
        """
        kind = node.name()
        chosen = self._saved(node, CHOICE_TENSORS[kind])
        if chosen is None or not chosen.numel():
            return None
        if kind == "GatherBackward0":
            scores = self._saved(node, "self")
            shape = tuple(scores.shape) if scores is not None else ()
            dim = len(shape) - 1
            if not shape or chosen.shape[:-1] != shape[:-1] or not chosen.shape[-1] > 1:
                return None  # a single element per row: the score of a label or an action
        else:
            dim, shape = private.chosen_from(node) or (0, ())
        if len(shape) < 2 or dim != len(shape) - 1 or not MIN_EXPERTS <= shape[-1] <= MAX_EXPERTS:
            return None
        if kind != "MaxBackward0" and chosen.shape[-1] >= shape[-1]:
            return None
        probable = self._from_a_product(node, shape[-1])
        return (chosen, shape[-1]) if probable is not None and self._weighs(node, probable) else None

    def _from_a_product(self, node: Any, experts: int) -> bool | None:
        """Return whether the scores are probabilities; ``None`` if they do not come from a product with a weight."""
        probable = False
        for _ in range(_MAX_NODES_TO_PRODUCT):
            node = next((child for child, _ in node.next_functions if child is not None), None)
            if node is None:
                return None
            kind = node.name()
            if kind.startswith(_PRODUCT_NODES):
                return probable if self._by_a_weight(node, kind) else None
            if kind.startswith(_PROBABILITY_NODES):
                probable = True
            elif not kind.startswith(_SCORE_NODES):
                return None
            elif kind.startswith(("View", "UnsafeView", "Reshape")):
                shape = private.shape_before(node)
                if shape is None or not shape or shape[-1] != experts:
                    return None
        return None

    def _by_a_weight(self, product: Any, kind: str) -> bool:
        """Return whether the right factor of a product is a parameter, as it is, cast, or divided by its norm."""
        after = product.next_functions
        at = 1 if kind.startswith(("MmB", "BmmB", "LinearB")) else 2
        node = after[at][0] if len(after) > at else None
        if node is None:  # the factor requires no gradient
            right = self._saved(product, "weight" if kind.startswith("LinearB") else "mat2")
            return right is not None and isinstance(right if right._base is None else right._base, nn.Parameter)
        for _ in range(_MAX_NODES_TO_WEIGHT):
            if not node.next_functions:
                return hasattr(node, "variable")
            if not node.name().startswith(_WEIGHT_NODES) or node.next_functions[0][0] is None:
                return False
            node = node.next_functions[0][0]
        return False

    def _weighs(self, node: object, probable: bool) -> bool:
        """Return whether the chosen values, once probabilities, multiply something that has a gradient of its own."""
        seen = {(node, probable)}
        waiting = [(node, probable)]
        for here, likely in waiting:  # the list grows during the loop
            for user in self._users.get(here, ()):
                kind = user.name()
                others = [child for child, _ in user.next_functions if child is not None and child is not here]
                custom = isinstance(user, torch.autograd.function.BackwardCFunction)
                if likely and (custom or (others and kind.startswith(("Mul", *_PRODUCT_NODES)))):
                    return True
                if not kind.startswith(_PASS_THROUGH_NODES) or len(seen) >= _MAX_NODES_AFTER_CHOICE:
                    continue
                state = user, likely or kind.startswith(_PROBABILITY_NODES)
                if state not in seen:
                    seen.add(state)
                    waiting.append(state)
        return False


def load(chosen: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the load of the fullest expert and the fraction of unused experts, as tensors on the device.

    The load is the fraction of choices that go to the expert, times the number of experts.
    """
    flat = chosen.reshape(-1)
    counts = torch.zeros(experts, dtype=torch.int64, device=flat.device)
    counts.scatter_add_(0, flat, torch.ones_like(flat))
    return counts.amax() * (experts / flat.numel()), (counts == 0).float().mean()
