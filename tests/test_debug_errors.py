"""Errors raised while the debugger steps, and the use of torch after them."""

from __future__ import annotations

import pytest
import torch
from stepping import Fails, hooks_left, no_threads, small

import backprobe
from backprobe import BackprobeError


def test_errors_of_torch_are_raised_at_once() -> None:
    with pytest.raises(RuntimeError, match="does not require grad"):
        backprobe.debug(torch.ones(()))
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        backprobe.debug(torch.ones(3, requires_grad=True) * 2)
    with pytest.raises(TypeError, match="keep_graph"):
        backprobe.debug(torch.ones((), requires_grad=True) * 2, keep_graph=True)
    with pytest.raises(BackprobeError, match=r"call is 'forward'; it is 'backward'"):
        backprobe.debug(torch.ones(()), call="forward")
    with pytest.raises(BackprobeError, match=r"model is a int; give a torch.nn.Module"):
        backprobe.debug(torch.ones((), requires_grad=True) * 2, model=3)
    assert no_threads()


def test_it_stops_where_a_node_raises() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    dbg = backprobe.debug((Fails.apply(x) * 3).sum())
    stop = dbg.cont()
    assert (stop.node.name, stop.phase, dbg.state) == ("FailsBackward", "exception", "raised")
    assert stop.reason == "raised: ZeroDivisionError: no such gradient"
    assert stop.grad_outputs[0].tolist() == [3.0, 3.0]
    assert stop.saved["tensors[0]"].tolist() == [1.0, 2.0]
    assert isinstance(stop.error, ZeroDivisionError)
    with pytest.raises(BackprobeError, match="has raised: its gradients cannot be replaced"):
        dbg.replace(0.0)
    with pytest.raises(ZeroDivisionError, match="no such gradient"):
        dbg.cont()
    assert dbg.done and no_threads()
    _torch_works()


def test_it_stops_where_a_hook_raises() -> None:
    model, x = small()
    h = model[0](x)

    def hook(grad):
        raise KeyError("mine")

    h.register_hook(hook)
    dbg = backprobe.debug(model[2](model[1](h)).sum())
    stop = dbg.cont()
    assert stop.reason == "raised before it began, in a hook: KeyError: 'mine'"
    with pytest.raises(KeyError):
        dbg.finish()
    _torch_works()


def test_the_context_manager_raises_what_the_backward_raises() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ZeroDivisionError), backprobe.debug(Fails.apply(x).sum()):
        pass
    loss = x.exp().sum()
    with pytest.raises(LookupError), backprobe.debug(loss, retain_graph=True) as dbg:
        raise LookupError
    assert dbg.state == "aborted" and x.grad is None
    assert hooks_left(loss) == 0
    with backprobe.debug(loss):
        pass
    assert torch.equal(x.grad, x.detach().exp())


def test_abort_leaves_torch_usable() -> None:
    model, x = small()
    loss = model(x).sum()
    dbg = backprobe.debug(loss, retain_graph=True)
    dbg.until(node="Relu*")
    dbg.abort()
    dbg.abort()
    assert dbg.state == "aborted" and model[0].weight.grad is None and model[2].weight.grad is not None
    assert hooks_left(loss) == 0 and no_threads()
    with pytest.raises(BackprobeError, match="the backward is aborted: there is nothing to step through any more"):
        dbg.step()
    with pytest.raises(BackprobeError, match="the backward is not over, it is aborted"):
        _ = dbg.result
    model.zero_grad()
    loss.backward()
    assert model[0].weight.grad is not None


def _torch_works() -> None:
    x = torch.ones(3, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_a_transform_is_refused() -> None:
    def f(x):
        backprobe.debug((x * x).sum())
        return x

    with pytest.raises(BackprobeError, match=r"cannot run inside a torch.func transform"):
        torch.func.vmap(f)(torch.ones(3, 2))
