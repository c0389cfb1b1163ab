"""Generated programs of differentiable ops, as a hypothesis strategy."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

#: (name, arity, function). All smooth on what reaches them.
OPS = (
    ("add", 2, lambda a, b: a + b),
    ("mul", 2, lambda a, b: a * b),
    ("sub", 2, lambda a, b: a - b),
    ("matmul", 2, lambda a, b: a @ b.t() / 3),
    ("tanh", 1, torch.tanh),
    ("sin", 1, torch.sin),
    ("exp", 1, lambda a: torch.exp(a.clamp(max=2))),
    ("view", 1, lambda a: a.reshape(9).view(3, 3)),
    ("t", 1, lambda a: a.t()),
    ("detach", 1, lambda a: a.detach() * 2),
    ("row", 1, lambda a: a[1:2].expand(3, 3)),
    ("cat", 2, lambda a, b: torch.cat([a[:1], b[1:]])),
    ("inplace", 1, lambda a: (a * 1).add_(1).mul_(a.detach())),
    ("unbind", 1, lambda a: torch.stack(a.unbind(0)[::-1])),
    ("square", 1, lambda a: Square.apply(a)),
    ("split", 1, lambda a: sum(a.split(1)).expand(3, 3)),
)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


@st.composite
def programs(draw):
    """Leaves, ops on earlier values, hooks that change gradients, and the values that backward starts from."""
    leaves = draw(st.integers(1, 3))
    steps = []
    for i in range(draw(st.integers(1, 12))):
        op = draw(st.integers(0, len(OPS) - 1))
        steps.append((op, [draw(st.integers(0, leaves + i - 1)) for _ in range(OPS[op][1])]))
    count = leaves + len(steps)
    hooks = draw(st.lists(st.integers(0, count - 1), max_size=2, unique=True))
    roots = draw(st.lists(st.integers(leaves, count - 1), min_size=1, max_size=3))
    some = draw(st.booleans())
    return leaves, steps, hooks, roots, some
