"""Generated graphs: results as without us, and records held against autograd itself."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from watching import same, watched

from backprobe.observe.session import Settings

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


def run(program, seed, note=None):
    leaves, steps, hooks, roots, some = program
    torch.manual_seed(seed)
    values = [torch.randn(3, 3, requires_grad=True) for _ in range(leaves)]
    order = []
    for op, inputs in steps:
        values.append(OPS[op][2](*(values[i] for i in inputs)))
    for h in hooks:
        if values[h].requires_grad:
            values[h].register_hook(lambda g, h=h: order.append(h) or g * 1.5)
    starts = [values[r].sum() for r in roots if values[r].requires_grad]
    if not starts:
        return None
    if note is not None:
        note(values, starts)
    if some:
        torch.autograd.backward(starts, inputs=values[:1] if leaves > 1 else None)
    else:
        torch.autograd.backward(starts)
    return [[v.grad for v in values[:leaves]], order]


@settings(max_examples=120)
@given(programs())
def test_gradients_and_hook_order_are_the_same(program) -> None:
    alone = [run(program, seed) for seed in range(4)]
    session, collector = watched(Settings(careful=2))
    session.start()
    try:
        seen = [run(program, seed) for seed in range(4)]
    finally:
        session.stop()
    assert len(alone) == len(seen)
    for a, b in zip(alone, seen, strict=True):
        assert (a is None and b is None) or (a[1] == b[1] and all(map(_same, a[0], b[0])))
    for call in collector.trace(session).backwards:
        ran = [r for r in call.nodes if r.order is not None]
        assert sorted(r.order for r in ran) == list(range(len(ran)))


def _same(a, b) -> bool:
    return (a is None and b is None) or same(a, b)


@settings(max_examples=80)
@given(programs(), st.sampled_from(["careful", "quick"]))
def test_recorded_norms_are_what_autograd_hooks_see(program, how) -> None:
    """The oracle: a pre-hook of our own on every node of the graph, one norm at a time."""
    seen: list[dict[int, list]] = []
    bases: list[int] = []

    def note(values, starts):
        found: dict[int, list] = {}
        seen.append(found)
        nodes, stack = set(), [s.grad_fn for s in starts]
        while stack:
            node = stack.pop()
            if node is None or node in nodes:
                continue
            nodes.add(node)
            stack += [n for n, _ in node.next_functions]
            if node.name() != "torch::autograd::AccumulateGrad":
                seq = node._sequence_nr()

                def hook(grads, seq=seq):
                    found[seq] = [None if g is None else g.norm().item() for g in grads]

                node.register_prehook(hook)
        bases.append(min(n._sequence_nr() for n in nodes))

    session, collector = watched(Settings(careful=3 if how == "careful" else 0))
    session.start()
    try:
        results = [run(program, seed, note) for seed in range(3)]
    finally:
        session.stop()
    if results[-1] is None:
        return
    calls = list(collector.trace(session).backwards)
    assert len(calls) == 3
    for call, found, base in zip(calls, seen, bases, strict=True):
        recorded = {}
        for r in call.nodes:
            if r.order is not None and not r.name.endswith("AccumulateGrad"):
                recorded[r.node.seq + base] = r.grad_outputs
        assert set(recorded) == set(found)
        for seq, norms in found.items():
            for k, norm in enumerate(norms):
                stat = recorded[seq][k] if k < len(recorded[seq]) else None
                if norm is None:
                    assert stat is None
                else:
                    assert stat is not None
                    assert stat.norm is not None
                    assert math.isclose(stat.norm, norm, rel_tol=1e-4, abs_tol=1e-6)
