"""Explains why there is no derivative: detached tensors, ends of gradient paths, and torch's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from ...basics.errors import BackprobeError
from ...basics.torch_texts import (
    ATTENTION,
    DONATED,
    FREED,
    FREED_TENSORS,
    IN_PLACE,
    IN_PLACE_DETAIL,
    NO_DERIVATIVE,
    ONCE,
    REENTRANT,
)
from ...torch_internals.autograd_engine import gradient_edge
from ...torch_internals.walk import Plans, walk
from .named import Named

#: Maximum number of tensors or graph ends that a message names.
_MAX_NAMES = 5


def check(named: Named) -> None:
    """Check that every tensor can have a derivative: floating-point, and attached to a graph.

    Raises:
        BackprobeError: naming the tensor and what to change.
    """
    for name, tensor in zip(named.names, named.tensors, strict=True):
        if tensor.requires_grad and tensor.layout is torch.strided:  # it is a floating one then
            continue
        reason = unfit(tensor, named.role)
        if reason:
            raise BackprobeError(f"{name} {reason}")


def unfit(tensor: torch.Tensor, role: str) -> str:
    """Explain why `tensor` has no derivatives at all; empty if it may have some."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return (
            f"is {tensor.dtype}: only floating point tensors have derivatives. Start from the first floating one after "
            "it, such as the output of the embedding"
        )
    if tensor.layout is not torch.strided:
        return f"has layout {tensor.layout}: only dense (strided) tensors are supported"
    if not tensor.requires_grad:
        return f"is not attached to a graph: {_cut(role, tensor)}"
    return ""


def _cut(role: str, tensor: torch.Tensor) -> str:
    """Explain why a tensor is not attached to a graph, and what to change.
    :param role: ``x`` or ``y``.
    """
    if tensor.is_inference():
        return "it was made under torch.inference_mode(). Run the forward again without it"
    if role == "x":
        return (
            "it does not require grad, so nothing after it knows it. Call x.requires_grad_() before the forward, or "
            "capture it attached: without detach(), no_grad(), or .data"
        )
    return (
        "it has no grad_fn. It left the graph (detach(), .data, .item(), numpy), was made under torch.no_grad(), or "
        "nothing that it was made from requires grad"
    )


class Reach:
    """The nodes of the graph of `roots`, and the edges in it: node and number of its output."""

    def __init__(self, roots: list[torch.Tensor]) -> None:
        """Walk the graph of `roots`, and collect its nodes and edges."""
        begin = [tuple(gradient_edge(root)[:2]) for root in roots]
        graph = walk([node for node, _ in begin], Plans(1))
        self.nodes, plan = graph.nodes, graph.plan
        inner = zip(plan.targets, plan.numbers, strict=True)
        self.edges = {*begin, *((self.nodes[to], number) for to, number in inner if to >= 0)}

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return whether the graph goes through `tensor`."""
        return tuple(gradient_edge(tensor)[:2]) in self.edges


def unreached(y: Named, x: Named, none: list[int]) -> list[int]:
    """Return the positions of the tensors of `x` that the graph of `y` does not reach.

    :param none: positions of tensors for which torch returned no gradient. If the graph reaches such a tensor, its
        gradient is zero.
    """
    if not none:
        return []
    reach = Reach(y.tensors)
    return [i for i in none if not reach.holds(x.tensors[i])]


def not_connected(y: Named, x: Named, lost: list[int]) -> BackprobeError:
    """Return the error for tensors of x (by position) that y does not depend on."""
    names = ", ".join(x.names[i] for i in lost[:_MAX_NAMES]) + (", ..." if len(lost) > _MAX_NAMES else "")
    many = f" ({len(lost)} of {len(x.names)})" if len(x.names) > 1 else ""
    target = y.names[0] if len(y.names) == 1 else f"any of {', '.join(y.names[:_MAX_NAMES])}"
    return BackprobeError(f"{names}{many} is not reached from {target}: {why(y, x, lost)}")


def why(y: Named, x: Named, lost: list[int]) -> str:
    """Return the first specific reason why a tensor of `x` is not reached, or else the nodes where the graph ends."""
    reasons = [reason for _, reason in each_reason(y, x, lost) if reason]
    return reasons[0] if reasons else _ends(y, x.names[lost[0]])


def each_reason(y: Named, x: Named, lost: list[int]) -> Iterator[tuple[int, str]]:
    """Yield (position, reason) for unreached tensors of x; the reason is empty if the graph does not show one."""
    reach = Reach(y.tensors)
    for i in lost:
        name, tensor = x.items()[i]
        node = tensor.grad_fn
        if tensor._version and node is not None and _came_from(node, reach):
            yield (
                i,
                f"{name} was modified in place after it had been used (version {tensor._version}), and now stands for "
                "the value after that. Keep a clone() from before the in-place operation",
            )
            continue
        back = Reach([tensor])
        after = any(back.holds(t) for t in y.tensors)
        yield i, f"{name} is computed from {y.names[0]}, not the other way round. Exchange y and x" if after else ""


def _ends(y: Named, name: str) -> str:
    """Explain that no path leads to `name`, with the nodes at which the graph of `y` ends."""
    nodes = Reach(y.tensors).nodes
    ends = [node for node in nodes if not any(following for following, _ in node.next_functions)]
    shown = ", ".join(_end(node) for node in ends[:_MAX_NAMES]) + (", ..." if len(ends) > _MAX_NAMES else "")
    return (
        f"the graph of {y.names[0]} has {len(nodes)} nodes and ends at {shown}. Either it does not use {name}, or the "
        "path between them is cut (detach(), .data, no_grad(), an integer index, numpy), or they are from two forward "
        "passes"
    )


def _came_from(node: torch.autograd.graph.Node, reach: Reach, depth: int = 64) -> bool:
    """Return whether the nearest ancestors of `node` are in `reach`."""
    for _ in range(depth):
        following = [edge for edge in node.next_functions if edge[0] is not None]
        if any(edge in reach.edges for edge in following):
            return True
        if not following:
            return False
        node = following[0][0]
    return False


def _end(node: torch.autograd.graph.Node) -> str:
    """Describe a node at which a graph ends: a leaf with its shape, or the node's name."""
    variable = getattr(node, "variable", None)
    if variable is not None:
        return f"a leaf of shape {list(variable.shape)}"
    return str(node.name())


def translated(error: Exception, what: str, y: Named, x: Named) -> BackprobeError | None:
    """Return torch's error in our own words; ``None`` for an unknown error."""
    text = str(error)
    place = f"{what} of {', '.join(y.names[:_MAX_NAMES])} with respect to {', '.join(x.names[:_MAX_NAMES])}"
    if FREED in text or FREED_TENSORS in text:
        return BackprobeError(
            f"{place}: the graph is freed. A backward() or autograd.grad() has run through it and let go of its saved "
            "tensors. Call that with retain_graph=True, or ask for derivatives before it"
        )
    if IN_PLACE in text:
        found = IN_PLACE_DETAIL.search(text)
        op = re.sub(r"Backward\d*$", "", found["op"] or "") if found else ""  # newer torch leaves it out itself
        which = (
            f"output {found['output']} of {op} (shape [{found['shape']}], now at version {found['found']})"
            if found and op
            else "a tensor that the backward pass needs"
        )
        return BackprobeError(
            f"{place}: {which} was changed in place after the forward, so the derivative can no longer be computed. "
            "Ask before the change, or change a clone()"
        )
    if REENTRANT in text:
        return BackprobeError(
            f"{place}: a reentrant checkpoint is on the way, which knows backward() only. Checkpoint with "
            "use_reentrant=False"
        )
    if DONATED in text:
        return BackprobeError(
            f"{place}: a compiled part on the way lets go of its buffers after one backward. Set "
            "torch._functorch.config.donated_buffer = False before the forward, or run it uncompiled"
        )
    return None


def no_second_derivative(error: Exception, y: Named, x: Named) -> BackprobeError:
    """Return the error for a graph whose backward pass cannot be differentiated, which a JVP needs."""
    text = str(error) or type(error).__name__
    found = NO_DERIVATIVE.search(text)
    what = found[1] if found else text.splitlines()[0]
    advice = "Use what needs VJPs only: bp.vjp, bp.jacobian, bp.jacobian_norm(method='exact' or 'hutchinson')"
    if ATTENTION in text:
        advice = (
            "It is fused attention: run the forward inside torch.nn.attention.sdpa_kernel(SDPBackend.MATH), or load a "
            f"transformers model with attn_implementation='eager'. {advice}"
        )
    elif ONCE in text:
        advice = f"A custom Function on the way is marked @once_differentiable. {advice}"
    return BackprobeError(
        f"no JVP of {', '.join(y.names[:_MAX_NAMES])} with respect to {', '.join(x.names[:_MAX_NAMES])}: it "
        f"differentiates the backward pass once more, and that fails at {what}. {advice}"
    )
