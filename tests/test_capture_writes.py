"""Capture of tensors that are written in place: values stay as captured, and partial gradients are not returned."""

from __future__ import annotations

import pytest
import torch
from capturing import Function, model_of, oracle
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import backprobe as bp

STEPS = {
    "linear": lambda: nn.Linear(4, 4),
    "relu_": lambda: nn.ReLU(inplace=True),
    "mul_": lambda: Function(lambda x: x.mul_(1.5)),
    "view": lambda: Function(lambda x: x.view(-1).view(x.shape)),
    "turn": lambda: Function(lambda x: x.flip(1).t().t()),
    "part": lambda: Function(lambda x: [x, x[1:].sin_()][0]),
    "same": nn.Identity,
    "tanh": nn.Tanh,
}


@settings(max_examples=60)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=7))
def test_any_chain_of_views_and_writes(steps: list[str]) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), *(STEPS[s]() for s in steps), nn.Linear(4, 1)).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    try:
        model(x).square().sum().backward()
    except RuntimeError:  # a write to what a step before it has saved
        assume(False)
    acts = bp.capture(model, x, grads=True)
    acts.output.square().sum().backward()
    for name in acts:
        value, grad = oracle(model, x, name)
        assert torch.equal(acts[name], value), name
        if name in acts.grads:
            torch.testing.assert_close(acts.grads[name], grad, rtol=1e-10, atol=1e-12, msg=name)
        else:
            with pytest.raises(bp.BackprobeError, match="no true gradient"):
                acts.grads[name]


def test_an_edge_names_a_value_that_was_written_later() -> None:
    model, x = model_of("in place")
    acts = bp.capture(model, x)
    _, expected = oracle(model, x, "0")
    (grad,) = torch.autograd.grad(acts.output.square().sum(), acts.edge("0"), retain_graph=True)
    torch.testing.assert_close(grad, expected)
    # The value itself hangs on the graph where it was.
    (bias,) = torch.autograd.grad(acts["0"].sum(), model[0].bias)
    assert torch.equal(bias, torch.full_like(bias, 5))
    with pytest.raises(bp.BackprobeError, match="'0' has no gradient edge: detached"):
        bp.capture(model, x, detach=True).edge("0")


WRITES = {
    "method": lambda y: y.zero_(),
    "set item": lambda y: y.__setitem__(0, 0.0),
    "a view": lambda y: y.view(-1).zero_(),
    "data": lambda y: y.data.zero_(),
    "out": lambda y: torch.mul(y.detach(), 0.0, out=y.detach()),
    "foreach": lambda y: torch._foreach_zero_([y.detach()]),
    "operator": lambda y: y.detach().__imul__(0),
    "under no_grad": lambda y: torch.no_grad()(y.zero_)(),
}


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_values_do_not_change_with_later_writes(write: str, detach: bool) -> None:
    model, x = model_of("mlp")
    expected = model[0](x).detach()
    with bp.capture(model, detach=detach) as acts:
        y = model[0](x)
        WRITES[write](y)
        model[1](y)
    assert torch.equal(acts["0"], expected)
    assert not torch.equal(y, expected)
    assert torch.equal(acts["1"], y.tanh())


@pytest.mark.parametrize("options", [{}, {"detach": True}, {"dtype": torch.float32}, {"index": 0}])
def test_a_gradient_that_is_not_whole_is_not_given(options: dict) -> None:
    """The base of a captured view is written itself: what the write hands on is not laid out as the view."""

    def writes_the_base(x):
        y = x * 1
        view(y)
        return y.mul_(2)

    view = Function(lambda y: y.t())
    model = nn.Sequential(nn.Linear(3, 3), Function(writes_the_base))
    model.add_module("view", nn.Identity())
    model[1].view = view
    acts = bp.capture(model, torch.ones(2, 3), grads=True, **options)
    acts.output.sum().backward()
    with pytest.raises(KeyError, match=r"no true gradient for '1.view': it is a view whose base was written in place"):
        acts.grads["1.view"]
    assert "1.view" not in acts.grads and "1" in acts.grads
    if not acts["1.view"].requires_grad:
        assert acts["1.view"].grad is None


@pytest.mark.parametrize("options", [{"detach": True}, {"dtype": torch.float32}, {"reduce": torch.sum}])
@pytest.mark.parametrize("case", ["in place", "in place on a view", "in place twice on a view"])
def test_what_is_made_of_values_is_true_too(case: str, options: dict) -> None:
    model, x = model_of(case)
    acts = bp.capture(model, x, grads=True, **options)
    acts.output.square().sum().backward()
    make = options.get("reduce", lambda t: t.to(options.get("dtype", t.dtype)))
    for name in acts:
        value, grad = oracle(model, x, name)
        assert torch.equal(acts[name], make(value)), name
        torch.testing.assert_close(acts.grads[name], make(grad), msg=name)
    with torch.inference_mode():
        quiet = bp.capture(model, x, **options)
    for name in acts:
        assert torch.equal(quiet[name], acts[name]), name


def test_a_write_invisible_to_python_is_reported() -> None:
    model, x = model_of("mlp")
    with bp.capture(model) as acts:
        y = model[0](x)
        with torch._C.DisableTorchFunction():
            y.detach().zero_()
    assert acts.notes["0"].startswith("overwritten in place by code that Python does not see")
    assert "note: 0: overwritten" in repr(acts)
