"""Results of a replay: its gradients, and the part of its history up to an earlier stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..basics.errors import BackprobeError
from ..torch_internals import private
from .graph_task import summed
from .runner import ReplayedNode
from .single import hooks_of
from .start import Start

if TYPE_CHECKING:
    from torch.autograd.graph import GradientEdge


def gradients(start: Start, history: Sequence[ReplayedNode]) -> dict[torch.Tensor | GradientEdge, torch.Tensor | None]:
    """Return the gradients so far: of the leaves that got one, or of the requested inputs."""
    if start.inputs is not None:
        # The engine captures a gradient before the tensor's hooks if the node runs too, and after them if it does not.
        ran = {r.node.index: r.grad_outputs if r.how == "asked" else r.received for r in history}
        return {key: ran[i][number] if i in ran else None for key, i, number in start.inputs}
    found: dict[torch.Tensor | GradientEdge, torch.Tensor | None] = {}
    with torch.set_grad_enabled(start.create_graph), private.disable_function_modes():
        for one in history:
            came = list(one.inner)
            leaf = start.graph.leaf(one.node.index)
            grad = one.grad_outputs[0] if leaf is not None else None
            if leaf is not None and grad is not None:
                came.append((leaf, grad))
            for tensor, new in came:
                old = found.get(tensor)
                found[tensor] = new if old is None else summed(old, new)
    return found


def accumulate(start: Start, grads: Mapping[Any, torch.Tensor | None]) -> None:
    """Run the ``AccumulateGrad`` node of each leaf on its gradient, then the post-hooks registered on that node."""
    for leaf, grad in grads.items():
        assert grad is not None
        node = private.gradient_edge(leaf).node
        with torch.set_grad_enabled(start.create_graph):
            grad = grad.to(leaf.dtype)
            node(grad if start.create_graph else grad.clone())  # type: ignore[operator]
            for hook in list(hooks_of(node, node.register_hook).values()):
                hook((), (grad,))


def until(history: Sequence[ReplayedNode], position: int, phase: str) -> list[ReplayedNode]:
    """Return the part of `history` up to the moment when `position` nodes have run.

    Requested gradients in between are included, but not after a stop that follows a node.

    :param phase: ``"before"`` the next node, or ``"after"`` the last one.
    :raises BackprobeError: a gradient of that part was written to.
    """
    kept: list[ReplayedNode] = []
    count = 0
    for ran in history:
        counts = ran.how != "asked"
        if (counts or phase == "after") and count == position:
            break
        count += counts
        kept.append(ran)
    for ran in kept:
        if ran.written:
            raise BackprobeError(
                f"cannot go back: a hook or a rule has written into a gradient of {ran.node} in place, so what was "
                "there before is gone; begin again with backprobe.replay"
            )
    return kept
