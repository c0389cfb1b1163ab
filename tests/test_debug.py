"""The debugger at a stop: its position, and what a user can change and run again there."""

from __future__ import annotations

import itertools

import pytest
import torch
from stepping import Cube, Net, small

import backprobe
from backprobe import BackprobeError


def test_a_stop_tells_where_it_is() -> None:
    model, x = small()
    with backprobe.trace(model) as trace:
        loss = model(x).square().mean()
    dbg = backprobe.debug(loss, trace=trace)
    stop = dbg.stop
    assert (stop.node.name, stop.phase, stop.ran, dbg.state) == ("MeanBackward0", "before", [], "stopped")
    stop = dbg.until(node="Relu*", phase="after")
    assert (stop.node.module, stop.phase, stop.node.place.class_name) == ("1", "after", "ReLU")
    assert stop.node.place.site.text == "loss = model(x).square().mean()"
    assert [n.name for n in stop.path] == ["MeanBackward0", "PowBackward0", "AddmmBackward0", "ReluBackward0"]
    assert [n.name for n in stop.ran][-1] == "ReluBackward0"
    assert stop.ready[0].label == "AddmmBackward0"
    assert {n.parameter for n in stop.waiting if n.parameter} == {"0.weight", "0.bias"}
    result = stop.saved["result"]
    assert torch.equal(result, torch.relu(model[0](x)))
    assert torch.equal(stop.grad_inputs[0], stop.grad_outputs[0] * (result > 0))
    text = str(stop)
    assert "after ReluBackward0  in 1" in text and "test_debug.py:" in text
    assert "in  [0]  float32[5, 4]  norm" in text and "out [0]" in text and "-> AddmmBackward0" in text
    assert "->" in dbg.graph() and "ok    0  MeanBackward0" in dbg.graph()
    assert dbg.where().splitlines()[0] == "Tensor.backward()"
    dbg.finish()
    assert dbg.state == "over" and dbg.done and dbg.result is None


def test_steps_by_module() -> None:
    model = Net()
    with backprobe.trace(model):
        dbg = backprobe.debug(model(torch.randn(4, 6)).sum())
        seen = []
        stop = dbg.stop
        while stop is not None:
            seen.append(stop.node.module)
            stop = dbg.step("module")
        assert all(a != b for a, b in itertools.pairwise(seen))
        assert {"head", "enc.0.0", "enc.0.1", "enc.1.2"} <= set(seen)
        dbg = backprobe.debug(model(torch.randn(4, 6)).sum())
        inside = dbg.until(module="enc.1")
        assert inside.node.module == "enc.1.2"
        left = dbg.step(out=True)
        assert left.node.module != "enc.1.2"
        dbg.abort()


def test_modules_are_not_made_up() -> None:
    model, x = small()
    dbg = backprobe.debug(model(x).sum(), model=model)
    assert dbg.node.module is None
    with pytest.raises(BackprobeError, match=r"cannot step by module: modules and lines are not known, because"):
        dbg.step("module")
    with pytest.raises(BackprobeError, match=r"no node fits .*module '0'.*run it in 'with backprobe.trace"):
        dbg.break_at(module="0")
    stop = dbg.until(parameter="2.bias")
    assert stop.node.label == "AccumulateGrad(2.bias)"
    assert stop.variable is model[2].bias
    dbg.finish()


def test_nodes_made_before_the_trace_have_no_place() -> None:
    model, x = small()
    h = model[0](x)
    with backprobe.trace(model):
        dbg = backprobe.debug(model[2](h).sum())
        places = {i.name: i.place.site for i in dbg.stop.waiting if i.seq is not None}
        addmm = [i for i in dbg.stop.waiting if i.name == "AddmmBackward0"]
        dbg.finish()
    assert places["SumBackward0"] is not None
    assert [i.place.site is None for i in addmm] == [False, True]


# Changing


def test_a_replaced_gradient_goes_on() -> None:
    model, x = small()
    reference = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    dbg = backprobe.debug(model(x).sum())
    dbg.until(node="ReluBackward0")
    dbg.replace(lambda g: g * 2)
    assert dbg.grad_outputs[0].shape == (5, 4)
    dbg.until("AddmmBackward0 after")
    dbg.replace(dbg.grad_inputs[0] * 3, 0)  # of the bias
    dbg.finish()
    assert torch.equal(model[2].weight.grad, reference[2])
    assert torch.equal(model[0].weight.grad, reference[0] * 2)
    assert torch.equal(model[0].bias.grad, reference[1] * 6)


def test_a_replacement_shares_no_memory_with_the_callers_tensor() -> None:
    model, x = small()
    mine = torch.full((2, 4, 3), 7.0)
    dbg = backprobe.debug(model(x).sum(), model=model)
    dbg.until(parameter="0.weight")
    dbg.replace(mine[0])
    dbg.finish()
    model[0].weight.grad.zero_()
    assert bool((mine == 7).all())


def test_replacements_are_checked() -> None:
    model, x = small()
    with backprobe.debug(model(x).sum()) as dbg:
        dbg.until(node="ReluBackward0")
        what = r"gradient 0 into ReluBackward0 is float32\[5, 4\]; the replacement is "
        with pytest.raises(BackprobeError, match=what + r"float32\[4\]: shape, dtype and device must agree"):
            dbg.replace(torch.zeros(4))
        with pytest.raises(BackprobeError, match=what + r"float64\[5, 4\]"):
            dbg.replace(torch.zeros(5, 4, dtype=torch.float64))
        with pytest.raises(BackprobeError, match=r"has 1 gradients into it; there is no number 1"):
            dbg.replace(0.0, 1)
        with pytest.raises(BackprobeError, match=r"the replacement for .* is a str, not a tensor"):
            dbg.replace("zero")
        with pytest.raises(BackprobeError, match=r"ReluBackward0 has not run: there are no outgoing gradients"):
            _ = dbg.grad_inputs
        stop = dbg.stop
        dbg.step()
        with pytest.raises(
            BackprobeError, match=r"the backward has gone on from ReluBackward0: its gradients are gone"
        ):
            _ = stop.grad_outputs


def test_a_replacement_in_a_graph_of_gradients_keeps_its_graph() -> None:
    x, scale = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    dbg = backprobe.debug(x**3, x, create_graph=True, call="grad")
    dbg.replace(lambda g: g * scale)
    (first,) = dbg.finish()
    assert first.item() == 36.0
    assert [g.item() for g in torch.autograd.grad(first, [x, scale])] == [36.0, 12.0]


# A node once more


def test_rerun_is_bitwise_what_the_engine_got() -> None:
    model = Net()
    dbg = backprobe.debug(model(torch.randn(4, 6)).square().mean())
    compared = 0
    while dbg.step("into") is not None:
        if dbg.stop.phase == "after" and dbg.stop.variable is None and dbg.node.name != "NoisyBackward":
            again = dbg.rerun()
            assert again.same is True, dbg.node
            compared += 1
    assert compared > 20


def test_rerun_of_other_gradients() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    dbg = backprobe.debug(Cube.apply(x).sum())
    dbg.step()
    state = torch.get_rng_state()
    again = dbg.rerun([torch.tensor([1.0, 10.0])])
    assert (again.grad_inputs[0].tolist(), again.equal, again.same) == ([3.0, 120.0], None, None)
    with pytest.raises(BackprobeError, match=r"CubeBackward takes 1 gradients, one for each output; 2 were given"):
        dbg.rerun([x, x])
    dbg.step()
    with pytest.raises(BackprobeError, match=r"cannot be run again: it would add to .grad a second time"):
        dbg.rerun()
    dbg.finish()
    assert x.grad.tolist() == [3.0, 12.0]
    assert torch.equal(state, torch.get_rng_state())
