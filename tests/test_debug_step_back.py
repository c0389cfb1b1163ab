"""Stepping back in a running backward: the debugger restores the state and runs to the earlier stop again."""

from __future__ import annotations

import pytest
import torch
from stepping import Cube, Fails, Net, Noisy, grads, hooks_left, no_threads
from watching import same

import backprobe
from backprobe import BackprobeError
from backprobe.engine.difference import bitwise_equal
from backprobe.torch_internals import modes


def native(model, x, **kwargs):
    """Run two plain backward calls from a fixed random state; return the gradients and the random state after them."""
    torch.manual_seed(5)
    for _ in range(2):
        model(x).square().mean().backward(**kwargs)
    return [*grads(model), torch.get_rng_state()]


def place(dbg):
    """Return the position of the debugger, and a copy of the gradients at its stop."""
    stop = dbg.stop
    gradients = [None if g is None else g.clone() for g in stop.gradients]
    return (stop.phase, stop.node.label, stop.depth, len(stop.ran), len(gradients)), gradients


@pytest.mark.parametrize("again", [None, "reentrant", "plain"])
def test_back_and_forth_ends_with_the_same_bits(again) -> None:
    torch.manual_seed(0)
    model, x = Net(again), torch.randn(4, 6, requires_grad=True)
    expected = native(model, x)
    for p in model.parameters():
        p.grad = None
    torch.manual_seed(5)
    for _ in range(2):  # the second call accumulates
        loss = model(x).square().mean()
        dbg = backprobe.debug(loss, retain_graph=True)
        places = [place(dbg)]
        for _ in range(25):
            if dbg.step("into") is not None:
                places.append(place(dbg))
        for stops in (1, 3, 2, 7):
            del places[len(places) - stops :]
            assert dbg.back(stops).reason == "back"
            where, gradients = place(dbg)
            assert where == places[-1][0]
            assert all(map(bitwise_equal, gradients, places[-1][1]))
        while dbg.stop is not None:
            dbg.step()
    assert same(expected, [*grads(model), torch.get_rng_state()])
    assert hooks_left(loss) == 0
    assert modes.mode_depth() == 0
    assert no_threads()


def test_go_back_change_a_gradient_and_go_on() -> None:
    x, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
    x.grad = torch.ones(2)
    kept = x.grad
    loss = (w.exp() * x.sin()).sum()
    dbg = backprobe.debug(loss, retain_graph=True)
    dbg.replace(2.0)  # stays: it is before the place that we go back to
    dbg.step()
    dbg.replace(lambda g: g * 10)  # goes: it is there
    dbg.step("after")
    dbg.replace(lambda g: g * 0, 0)  # goes: it is later
    while dbg.state == "stopped" and not (
        dbg.node.seq is None and dbg.stop.variable is w and dbg.stop.phase == "after"
    ):
        dbg.step("into")
    assert w.grad is not None
    count = 1
    while dbg.back().node.name != "MulBackward0" or dbg.stop.phase != "before":
        count += 1
    assert count >= 2
    assert w.grad is None
    assert torch.equal(x.grad, torch.ones(2))
    assert dbg.grad_outputs[0].tolist() == [2.0, 2.0]
    dbg.replace(lambda g: g + 1)
    dbg.finish()
    torch.testing.assert_close(x.grad, 3 * w.detach().exp() * x.detach().cos() + 1)
    assert x.grad is kept
    torch.testing.assert_close(w.grad, 3 * (w.detach().exp() * x.detach().sin()))


def test_hooks_run_again_and_random_numbers_are_the_same() -> None:
    x = torch.randn(3, requires_grad=True)
    y = Noisy.apply(x.sin())
    calls = []
    y.register_hook(lambda g: calls.append(g.clone()))
    torch.manual_seed(1)
    dbg = backprobe.debug(y.exp().sum(), retain_graph=True)
    stop = dbg.until("Sin*")
    first = stop.grad_outputs[0].clone()
    dbg.step()
    assert torch.equal(dbg.back().grad_outputs[0], first)
    assert len(calls) == 2
    dbg.finish()
    after = torch.get_rng_state()
    x.grad = None
    torch.manual_seed(1)
    torch.rand(3)
    assert torch.equal(after, torch.get_rng_state())


def test_back_from_where_a_node_raised() -> None:
    x = torch.randn(3, requires_grad=True)
    dbg = backprobe.debug(Fails.apply(Cube.apply(x)).sum(), retain_graph=True)
    dbg.step()
    dbg.step()
    assert dbg.state == "raised"
    stop = dbg.back()
    assert (dbg.state, stop.node.name, stop.phase) == ("stopped", "FailsBackward", "before")
    assert dbg.back().node.name == "SumBackward0"
    with pytest.raises(ZeroDivisionError):
        dbg.finish()


def test_calls_of_every_form_go_back() -> None:
    x = torch.randn(3, requires_grad=True)
    dbg = backprobe.debug(x.sin().sum(), x, call="grad", create_graph=True)
    dbg.step()
    dbg.back()
    (grad,) = dbg.finish()
    assert torch.equal(torch.autograd.grad(grad.sum(), x)[0], -x.detach().sin())
    assert x.grad is None


def test_an_impossible_step_back_raises_and_keeps_the_position() -> None:
    x = torch.randn(3, requires_grad=True)
    dbg = backprobe.debug(x.sin().sum())
    dbg.step()
    with pytest.raises(BackprobeError, match=r"does not keep its graph.*retain_graph=True, or use backprobe\.replay"):
        dbg.back()
    assert dbg.node.name == "SinBackward0"
    dbg.finish()
    with pytest.raises(BackprobeError, match="the backward is over: there is nothing to step through"):
        dbg.back()
    dbg = backprobe.debug(x.sin().sum(), retain_graph=True)
    with pytest.raises(BackprobeError, match=r"back\(1\): there are 0 earlier stops in this backward"):
        dbg.back()
    x.register_post_accumulate_grad_hook(lambda p: None)
    last = dbg.until(node="AccumulateGrad", phase="after")
    with pytest.raises(BackprobeError, match=r"a leaf of shape \[3\] has a hook that runs after its gradient is accum"):
        dbg.back()
    assert dbg.stop is last
    dbg.finish()


def test_the_prompt_goes_back(monkeypatch, capsys) -> None:
    from io import StringIO

    script = "\n".join(
        ["n", "n", "g", "back", "replace grads[0] * 3", "back 9", "back x", "rerun float64", "rerun 3", "f"]
    )
    monkeypatch.setattr("sys.stdin", StringIO(script + "\n"))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with backprobe.breakpoint_backward():
        x.exp().sin().sum().backward(retain_graph=True)
    torch.testing.assert_close(x.grad, 3 * x.detach().exp() * x.detach().exp().cos())
    said = capsys.readouterr().out
    assert said.count("before SinBackward0") == 2
    assert "back(9): there are 1 earlier stops" in said
    assert "back takes a number of stops, not 'x'" in said
    assert "rerun takes 'float64' or nothing, not '3'" in said
    assert "out [0]  float64[2]" in said
    x.grad = None
    monkeypatch.setattr("sys.stdin", StringIO("n\nback\nhelp back\nf\n"))
    with backprobe.breakpoint_backward():
        x.exp().sum().backward()
    said = capsys.readouterr().out
    assert "cannot go back: this backward does not keep its graph" in said
    assert "keep its graph (retain_graph=True, or backprobe debug --retain)" in said
    assert torch.equal(x.grad, x.detach().exp())
