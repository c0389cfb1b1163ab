"""Several debuggers, in threads too, and backward calls inside the one that is stepped: no dead-lock, nothing left."""

from __future__ import annotations

import gc
import io
import threading
import weakref
from typing import Any

import pytest
import torch
from stepping import Net, both, grads, hooks_left, no_threads, order_of, small
from torch import nn
from watching import same

import backprobe
from backprobe import BackprobeError


def test_a_debugger_that_is_dropped_ends_its_thread() -> None:
    model, x = small()
    loss = model(x).sum()
    dbg = backprobe.debug(loss, retain_graph=True)
    dbg.step()
    assert not no_threads()
    del dbg
    gc.collect()
    assert no_threads() and hooks_left(loss) == 0
    loss.backward()


def test_nothing_keeps_the_graph() -> None:
    model, x = small()
    h = model[0](x)
    loss = h.relu().sum()
    dead = weakref.ref(h)
    dbg = backprobe.debug(loss)
    stop = dbg.step()
    dbg.finish()
    del h, loss
    gc.collect()
    assert dead() is None, gc.get_referrers(dead())
    assert stop.node.name == "ReluBackward0"


def test_two_debuggers_on_one_graph() -> None:
    model, x = small()
    shared = model[0](x).relu()
    a, b = model[2](shared).sum(), shared.square().sum()
    alone = [torch.autograd.grad(y, model[0].weight, retain_graph=True)[0] for y in (a, b)]
    one = backprobe.debug(a, retain_graph=True)
    two = backprobe.debug(b, retain_graph=True)
    count = [0, 0]
    while not (one.done and two.done):
        for k, dbg in enumerate((one, two)):
            if not dbg.done:
                count[k] += 1
                dbg.step()
    assert torch.allclose(model[0].weight.grad, alone[0] + alone[1])
    assert count == [len(order_of(a)), len(order_of(b))]


def test_threads_step_debuggers_of_their_own() -> None:
    """Four threads, each with a model of its own and a part that all share, step at the same time."""
    shared = torch.randn(3, 3, requires_grad=True)
    models = [small() for _ in range(4)]
    losses = [model(x @ shared).square().mean() for model, x in models]
    alone = [
        torch.autograd.grad(y, [*m.parameters(), shared], retain_graph=True)
        for y, (m, _) in zip(losses, models, strict=True)
    ]
    found: dict[int, tuple[Any, list[str]]] = {}
    together = threading.Barrier(4)

    def work(k: int) -> None:
        together.wait(600)
        wanted = [*models[k][0].parameters(), shared]
        debugger = backprobe.debug(losses[k], wanted, call="grad", retain_graph=True)
        names = []
        while not debugger.done:
            names.append(debugger.node.name)
            debugger.step()
        found[k] = debugger.result, names

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    for k in range(4):
        grads, names = found[k]
        assert all(map(torch.equal, grads, alone[k]))
        assert len(names) == len(order_of(losses[k])) - len(grads), names  # their accumulators only take


def test_backward_calls_at_a_stop() -> None:
    model, x = small()
    loss = model(x).sum()
    dbg = backprobe.debug(loss, retain_graph=True)
    dbg.step()
    inner = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    assert len(dbg.stop.ran) == 1
    dbg.finish()
    assert same(list(inner), grads(model))


def test_a_hook_that_calls_backward_over_the_same_nodes() -> None:
    def run(call):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = x.exp()
        z = y.sin()
        found = []
        z.register_hook(lambda g: found.append(torch.autograd.grad(y, x, g, retain_graph=True)[0]))
        call(z.sum())
        return [x.grad, found]

    alone, stepped = both(run, "into")
    assert same(alone, stepped)


@pytest.mark.parametrize("way", ["debug", "prompt"])
def test_rerun_of_a_node_that_runs_a_backward_accumulates_nothing(way: str, monkeypatch) -> None:
    """A reentrant checkpoint adds to ``.grad`` of its parameters, draws random numbers, and calls hooks after the
    accumulation: once each, whoever looks."""
    torch.manual_seed(0)
    model = Net("reentrant")
    x = torch.randn(4, 6, requires_grad=True)
    parameters = list(model.parameters())
    called: list[int] = []
    for p in parameters:
        p.register_post_accumulate_grad_hook(lambda p: called.append(1))
        p.grad = torch.zeros_like(p)

    def loss():
        torch.manual_seed(1)
        return nn.functional.dropout(model(x * 1), 0.5).sum()

    loss().backward()
    expected, once = [p.grad.clone() for p in parameters], len(called)
    grads = [torch.zeros_like(p) for p in parameters]
    for p, grad in zip(parameters, grads, strict=True):
        p.grad = grad
    called.clear()
    if way == "debug":
        with backprobe.trace(model) as trace:
            dbg = backprobe.debug(loss())
            dbg.until("CheckpointFunctionBackward")
            before = [p.grad.clone() for p in parameters], torch.get_rng_state()
            dbg.rerun()
            assert all(torch.equal(p.grad, old) for p, old in zip(parameters, before[0], strict=True))
            assert torch.equal(torch.get_rng_state(), before[1])
            dbg.step("after")
            assert dbg.rerun().same
            dbg.finish()
        assert sum(len(step.backward_calls) for step in trace.steps) == 0
    else:
        monkeypatch.setattr("sys.stdin", io.StringIO("unt Checkpoint*\nrerun\nrerun float64\nn\nrerun\nf\n"))
        with backprobe.breakpoint_backward():
            loss().backward()
    assert all(
        torch.equal(p.grad, g) and p.grad is mine for p, g, mine in zip(parameters, expected, grads, strict=True)
    )
    assert len(called) == once


def test_steps_go_into_a_reentrant_checkpoint() -> None:
    model = Net("reentrant")
    x = torch.randn(4, 6, requires_grad=True)
    dbg = backprobe.debug(model(x).sum())
    depths = set()
    while dbg.step("into") is not None:
        depths.add(dbg.stop.depth)
        if dbg.stop.depth == 2:
            assert dbg.stop.call.startswith("autograd.backward(")
    assert depths == {1, 2}
    dbg = backprobe.debug(model(x).sum())
    while dbg.step() is not None:
        assert dbg.stop.depth == 1


def test_a_debugger_cannot_be_steered_from_its_own_backward() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    found = []

    def hook(grad):
        try:
            dbg.step()
        except BackprobeError as error:
            found.append(str(error))

    y.register_hook(hook)
    dbg = backprobe.debug(y.sum())
    dbg.finish()
    assert found and "cannot be steered from inside its own backward" in found[0]
