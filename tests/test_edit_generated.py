"""Edits on generated programs (shared values, views, writes in place), against a custom function at each place."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import backprobe as bp

torch.set_num_threads(1)

UNARY = {
    "tanh": lambda a: a.tanh(),
    "scale": lambda a: a * 0.75,
    "relu": lambda a: (a - 0.1).relu(),
    "transposed": lambda a: (a * 1.5).t(),
    "view": lambda a: (a + 0.3).view(-1).view(3, 3),
    "same": lambda a: a.view(3, 3) if a.is_contiguous() else a * 1,
    "slice": lambda a: torch.cat([(a * 2)[:1], a[1:]]),
    "linear": lambda a: torch.nn.functional.linear(a.reshape(1, 3, 3), W, B).view(3, 3),
}
BINARY = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "matmul": lambda a, b: a @ b * 0.3}
WRITES = {
    None: lambda a: a,
    "mul_": lambda a: a.mul_(0.5),
    "relu_": lambda a: a.relu_(),
    "part": lambda a: (a[1:].mul_(0.25), a)[1],
    "twice": lambda a: a.mul_(0.5).add_(0.1),
}
ACTIONS = {
    None: None,
    "positive": lambda g: g.clamp(min=0),
    "triple": lambda g: g * 3,
    "shift": lambda g: g + 0.5,
    "norm": bp.gradient_ops.clip_norm(0.2),
}
W = torch.linspace(-1, 1, 9, dtype=torch.float64).view(3, 3)
B = torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64)


@dataclass
class Line:
    op: str
    first: int
    second: int
    action: str | None
    write: str | None


LINES = st.builds(
    Line,
    st.sampled_from([*UNARY, *BINARY]),
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from(list(ACTIONS)),
    st.sampled_from(list(WRITES)),
)


class Edited(torch.autograd.Function):
    """The definition of an edit: an identity that applies the action in its backward."""

    @staticmethod
    def forward(ctx, x, action):
        ctx.action = action
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return ctx.action(g), None


def run(lines, leaf, place):
    values = [leaf * 1]
    for line in lines:
        a = values[line.first % len(values)]
        if line.op in UNARY:
            out = UNARY[line.op](a)
        else:
            out = BINARY[line.op](a, values[line.second % len(values)])
        if line.op == "same":  # a view of a value that others use: what comes out must be a value of its own
            out = out + 0
        out = place(out, ACTIONS[line.action])
        values.append(WRITES[line.write](out))
    return sum(v.square().sum() for v in values[1:])


@settings(max_examples=150)
@given(st.lists(LINES, min_size=1, max_size=8), st.integers(0, 5))
def test_generated_programs(lines, seed):
    start = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    oracle = start.clone().requires_grad_()

    def insert(t, action):
        return t if action is None else Edited.apply(t, action)

    ours = start.clone().requires_grad_()
    try:
        (expected,) = torch.autograd.grad(run(lines, oracle, insert), oracle)
        (plain,) = torch.autograd.grad(run(lines, ours, lambda t, action: t), ours)
    except RuntimeError:  # a write that autograd itself refuses, in one form or the other
        return
    edits = []
    with ExitStack() as stack:

        def attach(t, action):
            if action is not None:
                edits.append(stack.enter_context(bp.edit_gradients({"t": t}, "t", action)))
            return t

        (got,) = torch.autograd.grad(run(lines, ours, attach), ours)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    assert all(edit.total == 1 for edit in edits)
    assert torch.overrides._get_current_function_mode_stack() == []
    if not edits:
        assert torch.equal(got, plain)
