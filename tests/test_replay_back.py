"""A replay forwards and back: the debugger's steps and breakpoints, other gradients on the way, the same bits again."""

from __future__ import annotations

import pytest
import torch
from replaying import engine, net
from stepping import Fails, Net, Noisy

import backprobe
from backprobe import BackprobeError, replay_rules
from backprobe.engine.difference import bitwise_equal


def test_steps_and_breakpoints_are_the_debuggers() -> None:
    model, x = net()
    with backprobe.trace(model):
        loss = model(x.detach()).square().mean()
        replay = backprobe.replay(loss)
        dbg = backprobe.debug(loss, retain_graph=True)
    while True:
        assert (replay.stop is None) == (dbg.stop is None)
        if dbg.stop is None:
            break
        assert (replay.node, replay.stop.phase, replay.stop.path) == (dbg.node, dbg.stop.phase, dbg.stop.path)
        assert replay.graph() == dbg.graph()
        assert all(map(bitwise_equal, replay.stop.gradients, dbg.stop.gradients))
        replay.step("into")
        dbg.step("into")
    replay.goto(0)
    assert replay.until(module="1").node.name == "ReluBackward0"
    replay.break_at(parameter="0.bias")
    assert replay.cont().node.parameter == "0.bias"
    assert replay.cont() is None


def test_back_and_on_with_another_gradient() -> None:
    model, x = net()
    loss = model(x).square().mean()
    expected = engine(loss)
    replay = backprobe.replay(loss, model=model)
    first = replay.until("ReluBackward0")
    old = first.grad_outputs[0].clone()
    position = replay.position
    replay.step()
    replay.step("after")
    assert replay.back(2).node.name == "ReluBackward0"
    assert replay.position == position
    assert torch.equal(replay.grad_outputs[0], old)
    replay.replace(lambda g: g * 2)
    replay.finish()
    for name, p in model.named_parameters():
        factor = 1 if name.startswith("4") else 2
        torch.testing.assert_close(replay.grads[p], expected[p] * factor)
    assert [n.node.name for n in replay.compare().nodes if n.reason] == ["ReluBackward0"]
    assert replay.back().node.name == "ReluBackward0"  # the stop before the end
    replay.finish()
    assert all(bitwise_equal(replay.grads[leaf], expected[leaf]) for leaf in expected)
    assert replay.compare().identical


def test_goto_everywhere_and_back_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    model = Net()
    loss = model(torch.randn(4, 6)).square().mean()
    expected = engine(loss)
    replay = backprobe.replay(loss)
    count = len(replay.stop.waiting)
    for position in (7, 3, count - 1, 0, 12, 12, 5):
        stop = replay.goto(position)
        assert (replay.position, stop.phase) == (position, "before")
        assert len(stop.ran) == position
    ran = [r.node for r in replay.runs]
    replay.finish()
    assert all(bitwise_equal(replay.grads[leaf], expected[leaf]) for leaf in expected)
    assert [r.node for r in replay.runs][:5] == ran
    with pytest.raises(BackprobeError, match=rf"goto\({count}\): this backward runs {count} nodes, 0 to {count - 1}"):
        replay.goto(count)


def test_going_back_runs_nothing_and_draws_the_same_numbers_again() -> None:
    x = torch.randn(3, requires_grad=True)
    calls = []
    y = Noisy.apply(x.sin())
    y.register_hook(lambda g: calls.append(1))
    replay = backprobe.replay(Noisy.apply(y).sum())
    first = replay.finish()[x].clone()
    assert len(calls) == 1
    replay.goto(3)
    assert len(calls) == 1
    torch.rand(5)
    assert torch.equal(replay.finish()[x], first)
    replay.goto(0)
    assert torch.equal(replay.finish()[x], first)
    assert len(calls) == 2
    assert replay.compare().identical


def test_back_to_after_a_node_forgets_what_was_replaced_there() -> None:
    x = torch.randn(3, requires_grad=True)
    replay = backprobe.replay(x.sin().exp().sum())
    replay.step("after")
    replay.replace(5.0)
    replay.step()
    assert replay.grad_outputs[0].tolist() == [5.0] * 3
    stop = replay.back()
    assert (stop.phase, stop.node.name) == ("after", "SumBackward0")
    assert stop.grad_inputs[0].tolist() == [1.0] * 3
    replay.finish()
    assert replay.compare().identical
    with pytest.raises(BackprobeError, match=r"back\(9\): there are 2 earlier stops to go back to"):
        replay.back(9)


def test_a_node_that_raises_can_be_gone_around() -> None:
    x = torch.randn(3, requires_grad=True)
    replay = backprobe.replay(Fails.apply(x.sin()).sum())
    with pytest.raises(ZeroDivisionError, match="no such gradient"):
        replay.finish()
    assert replay.node.name == "FailsBackward"
    replay.back()
    other = backprobe.replay(Fails.apply(x.sin()).sum(), rules={"FailsBackward": replay_rules.straight_through})
    assert torch.equal(other.finish()[x], x.detach().cos())


def test_a_gradient_that_a_hook_writes_into_cannot_be_gone_back_to() -> None:
    x = torch.randn(3, requires_grad=True)
    y = x.sin()
    y.register_hook(lambda g: g.mul_(2)[:0].tolist() or None)
    replay = backprobe.replay((y * 1).sum())
    replay.finish()
    with pytest.raises(BackprobeError, match="cannot go back: a hook or a rule has written into a gradient of"):
        replay.goto(2)
