"""Generated graphs: results as without us, and records compared with autograd itself."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import OPS, programs
from watching import same, watched

from backprobe.observe.session import Settings


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
    session, collector = watched(Settings(inspected_steps=2))
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
def test_recorded_norms_equal_those_of_autograd_hooks(program, how) -> None:
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

    session, collector = watched(Settings(inspected_steps=3 if how == "careful" else 0))
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
