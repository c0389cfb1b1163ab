"""Helpers for tests of replays: a model, the engine's gradients, and a check that a replay gives the same."""

from __future__ import annotations

import torch
from torch import nn

import backprobe
from backprobe.engine.difference import bitwise_equal


def net() -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    return model, torch.randn(6, 4, requires_grad=True)


def private_node(tensor):
    return torch.autograd.graph.get_gradient_edge(tensor).node


def leaves_of(tensors) -> list[torch.Tensor]:
    stack = [private_node(t) for t in (tensors if isinstance(tensors, (list, tuple)) else [tensors])]
    seen, found = set(), []
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        stack += [child for child, _ in node.next_functions]
    return found


def engine(tensors, grad_tensors=None, create_graph=False) -> dict:
    """Run torch's own backward from ``.grad`` None, and return the gradient of every leaf that got one."""
    leaves = leaves_of(tensors)
    kept = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    state = torch.get_rng_state()
    torch.autograd.backward(tensors, grad_tensors, retain_graph=True, create_graph=create_graph)
    torch.set_rng_state(state)
    found = {leaf: leaf.grad for leaf in leaves if leaf.grad is not None}
    for leaf, grad in zip(leaves, kept, strict=True):
        leaf.grad = grad
    return found


def assert_agrees(tensors, grad_tensors=None, **how) -> backprobe.Replay:
    """A replay whose gradients and nodes are the engine's, bit for bit, and in its order."""
    expected = engine(tensors, grad_tensors, how.get("create_graph", False))
    state = torch.get_rng_state()
    replay = backprobe.replay(tensors, grad_tensors, **how)
    found = replay.finish()
    assert torch.equal(torch.get_rng_state(), state)
    assert set(found) == set(expected)
    assert all(bitwise_equal(found[leaf], expected[leaf]) for leaf in expected)
    parity = replay.compare()
    assert parity.identical, str(parity)
    assert parity.same_order
    assert len(parity.nodes) == replay.position > 0
    return replay


class Pair(torch.autograd.Function):
    """Arguments that are no tensors, several outputs (one integer), ``None`` gradients kept."""

    @staticmethod
    def forward(ctx, scale, x, name, y):
        ctx.set_materialize_grads(False)
        ctx.scale = scale
        index = x.argmax()
        ctx.mark_non_differentiable(index)
        return x * scale, y.exp(), index

    @staticmethod
    def backward(ctx, a, b, c):
        return None, None if a is None else a * ctx.scale, None, b
