"""A replay in float64: of a whole backward, of each node, and what cannot run so."""

from __future__ import annotations

import pytest
import torch
from replaying import Pair, engine
from stepping import Noisy, hooks_left
from torch import nn

import backprobe
from backprobe import BackprobeError


def test_a_whole_backward_in_float64() -> None:
    """Held against the same model in float64, whose saved tensors are those of the float32 one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.GELU(), nn.Flatten(), nn.Linear(48, 4))
    x = torch.randn(5, 1, 6, 6)
    loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 2, 3, 0]))
    replay = backprobe.replay(loss, dtype=torch.float64)
    wide = replay.finish()
    assert replay.notes == []
    double = nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.GELU(), nn.Flatten(), nn.Linear(48, 4)
    ).double()
    double.load_state_dict(model.state_dict())
    double[1].reset_running_stats()
    exact = nn.functional.cross_entropy(double(x.double()), torch.tensor([0, 1, 2, 3, 0]))
    exact.backward()
    narrow = engine(loss)
    for p, q in zip(model.parameters(), double.parameters(), strict=True):
        assert wide[p].dtype is torch.float64
        torch.testing.assert_close(wide[p], q.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(wide[p].float(), narrow[p], rtol=1e-3, atol=1e-6)
    assert not replay.compare().identical
    assert replay.compare().worst.error < 1e-4
    replay.accumulate()
    assert all(p.grad.dtype is torch.float32 for p in model.parameters())
    assert hooks_left(loss) == 0


def test_the_rounding_error_of_each_node() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, dtype=torch.bfloat16, requires_grad=True)
    loss = (x.exp() * x).sin().sum()
    replay = backprobe.replay(loss)
    replay.finish()
    rows = {row.node.name: row for row in replay.rounding().nodes}
    assert rows["SumBackward0"].status == "identical"
    assert 1e-4 < rows["MulBackward0"].error < 1e-2  # bfloat16 keeps eight bits
    mul = next(r for r in replay.runs if r.node.name == "MulBackward0")
    exact = mul.grad_outputs[0].double() * x.detach().exp().double()
    other = mul.grad_outputs[0].double() * x.detach().double()
    near = mul.grad_inputs[0].double() - other
    off = torch.cat([near, mul.grad_inputs[1].double() - exact]).norm() / torch.cat([other, exact]).norm()
    worst = float(off)
    assert rows["MulBackward0"].error == pytest.approx(worst, rel=1e-9)
    assert f"off by {worst:.2g}" in str(rows["MulBackward0"])


class Writes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.kept = torch.ones(3)
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return ctx.kept.add_(g)


def test_nodes_without_float64_say_why_and_run_unchanged() -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(3, requires_grad=True)
    y = checkpoint(torch.sin, x, use_reentrant=False)
    y = Noisy.apply(y)
    y = Writes.apply(y)
    y = nn.functional.dropout(y, 0.5)
    y = Pair.apply(2.0, y, "", y)[0]
    loss = y.sum()
    replay = backprobe.replay(loss, dtype=torch.float64)
    assert replay.finish()[x].dtype is torch.float64
    notes = "\n".join(replay.notes)
    assert "SinBackward0 cannot be run in float64: its saved tensor 'self' lies behind a saved-tensor hook" in notes
    assert "NoisyBackward cannot be run in float64: aten.rand_like.default draws random numbers" in notes
    assert "WritesBackward cannot be run in float64: aten.add_.Tensor writes into a tensor that was there" in notes
    assert len(replay.notes) == 3
    again = backprobe.replay(loss)
    again.finish()
    reasons = {row.node.name for row in again.rounding().not_compared}
    assert reasons == {"SinBackward0", "NoisyBackward", "WritesBackward"}


@pytest.mark.parametrize("asked", [False, True])
def test_hooks_run_in_float64_and_are_reported(asked: bool) -> None:
    """Of each kind one, each once: a gradient with and without them differs by factors."""
    x = torch.randn(5, requires_grad=True)
    y = x.exp()
    z = Pair.apply(2.0, y.sin(), "", y)[0]
    calls: list[str] = []

    def times(factor: float, name: str):
        def hook(*grads):
            calls.append(name)
            return grads[0] * factor if isinstance(grads[0], torch.Tensor) else (grads[0][0] * factor, *grads[0][1:])

        return hook

    x.register_hook(times(3.0, "leaf"))
    y.register_hook(times(0.1, "tensor"))
    y.register_hook(lambda g: calls.append("looks"))
    y.grad_fn.register_prehook(times(5.0, "node before"))
    z.grad_fn.next_functions[0][0].register_hook(times(7.0, "node after"))
    node = torch.autograd.graph.get_gradient_edge(x).node
    node.register_prehook(times(2.0, "accumulator"))
    loss = z.sum()
    inputs = [y, x] if asked else None
    there = backprobe.replay(loss, inputs=inputs).finish()
    once = [*calls]
    calls.clear()
    replay = backprobe.replay(loss, inputs=inputs, dtype=torch.float64)
    found = replay.finish()
    assert sorted(calls) == sorted(once) and len(set(once)) >= 5
    for key, grad in there.items():
        torch.testing.assert_close(found[key], grad.double(), rtol=1e-6, atol=0)
    assert len(replay.notes) >= 2
    assert all("a hook changed its gradient, in its own precision" in note for note in replay.notes)


def test_hooks_that_only_look_leave_float64_as_it_is() -> None:
    x = torch.randn(50, requires_grad=True)
    y = x.exp()
    loss = y.sin().sum()
    exact = backprobe.replay(loss, dtype=torch.float64).finish()[x]
    seen = []
    y.register_hook(lambda g: seen.append(g.dtype))
    y.grad_fn.register_hook(lambda made, came: seen.append(made[0].dtype))
    replay = backprobe.replay(loss, dtype=torch.float64)
    assert torch.equal(replay.finish()[x], exact)
    assert replay.notes == [] and seen == [torch.float32, torch.float32]


def test_a_node_with_hooks_of_its_own_has_no_rounding_of_its_own() -> None:
    x = torch.randn(5, requires_grad=True)
    y = x.exp()
    y.grad_fn.register_hook(lambda made, came: (made[0] * 2,))
    replay = backprobe.replay(y.sum())
    replay.finish()
    (row,) = replay.rounding().not_compared
    assert row.node.name == "ExpBackward0" and "a hook of its own" in row.reason


def test_rerun_in_float64_at_a_stop() -> None:
    x = torch.randn(50, requires_grad=True)
    dbg = backprobe.debug(x.exp().sin().sum())
    dbg.step()
    dbg.step("after")
    again = dbg.rerun(dtype=torch.float64)
    assert again.grad_inputs[0].dtype is torch.float64
    exact = x.detach().exp().double().cos()
    torch.testing.assert_close(again.grad_inputs[0], exact, rtol=1e-14, atol=0)
    assert again.error == pytest.approx(float((dbg.grad_inputs[0].double() - exact).norm() / exact.norm()))
    assert 0 < again.error < 1e-6
    with pytest.raises(BackprobeError, match=r"dtype is torch.float16; it is torch.float64, or None"):
        dbg.rerun(dtype=torch.float16)
    with pytest.raises(BackprobeError, match=r"gradient 0 for SinBackward0 has the shape \[2\]; its output has \[50\]"):
        dbg.rerun([torch.ones(2)])
    with pytest.raises(BackprobeError, match="gradient 0 for SinBackward0 is a int"):
        dbg.rerun([3])
    dbg.finish()


def test_rerun_of_functions_whose_arguments_are_no_tensors() -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    a, b, _ = Pair.apply(2.0, x, "name", y)
    for root in (a, b, a + b):
        dbg = backprobe.debug(root.sum(), retain_graph=True)
        dbg.until("PairBackward")
        dbg.step("after")
        again = dbg.rerun()
        assert again.same, again
        assert len(again.grad_inputs) == 2
        dbg.finish()
