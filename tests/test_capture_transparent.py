"""Capture changes nothing: bits, hooks, errors and tools are as without it, and nothing remains afterwards."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from capturing import MODELS, Function, model_of, oracle, vector
from torch import nn
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack

import backprobe as bp


@pytest.mark.parametrize("case", MODELS)
def test_gradients_and_random_state_are_bitwise_as_without(case: str) -> None:
    results = []
    for captured in (False, True):
        model, x = model_of(case)
        x = F.dropout(x)
        if captured:
            with bp.capture(model, with_inputs=True, lines=True, grads=True) as acts:
                loss = model(x).square().sum()
                loss.backward()
            assert len(acts)
        else:
            model(x).square().sum().backward()
        results.append([p.grad for p in model.parameters()])
        results.append([torch.get_rng_state()])
    for a, b in zip(results[0] + results[1], results[2] + results[3], strict=True):
        assert torch.equal(a, b)


def attached(model: nn.Module) -> int:
    return sum(
        len(hooks)
        for m in model.modules()
        for hooks in (
            *(m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._backward_pre_hooks),
            *(m._forward_hooks_with_kwargs, m._forward_hooks_always_called, m._forward_pre_hooks_with_kwargs),
        )
    )


def test_nothing_is_left() -> None:
    model, x = model_of("residual")
    with bp.capture(model, with_inputs=True, lines=True) as acts:
        assert attached(model) > 0
        out = model(x)
    assert attached(model) == 0 and _get_current_function_mode_stack() == []
    copied, saved = weakref.ref(acts["bn1"]), weakref.ref(acts["conv1"])
    gc.disable()
    try:
        del acts
        assert copied() is None  # at once, without the collector
        out.sum().backward()
        assert saved() is None  # the graph had it
    finally:
        gc.enable()
    with pytest.warns(UserWarning, match="not a leaf"):
        assert out.grad is None
    ref = weakref.ref(model)
    del model, out
    gc.collect()
    assert ref() is None


def test_acts_do_not_keep_the_model() -> None:
    model, x = model_of("mlp")
    acts = bp.capture(model, x, detach=True)
    ref = weakref.ref(model)
    del model
    gc.collect()
    assert ref() is None and len(acts) == 4 and acts.unseen == {}


def test_a_live_graph_does_not_keep_captured_values() -> None:
    model, x = model_of("mlp")
    acts = bp.capture(model, x, dtype=torch.float16)
    loss = acts.output.sum()
    loss.backward(retain_graph=True)
    kept, grad = weakref.ref(acts["0"]), weakref.ref(acts.grads["0"])
    assert grad() is not None
    acts.close()
    assert len(acts) == 0 and kept() is None and grad() is None
    loss.backward()
    assert len(acts.grads) == 0


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_double_backward_leaves_no_cycle() -> None:
    model, x = model_of("mlp")
    acts = bp.capture(model, x)
    acts.output.sum().backward(create_graph=True)
    assert not acts["0"].grad.requires_grad
    ref = weakref.ref(acts["0"])
    for p in model.parameters():
        p.grad = None
    gc.disable()
    try:
        del acts
        assert ref() is None
    finally:
        gc.enable()


def test_an_error_of_the_model_is_raised_and_earlier_values_are_kept() -> None:
    def fails(x):
        raise ValueError("as it was")

    model = nn.Sequential(nn.Linear(4, 4), Function(fails), nn.Linear(4, 4)).double()
    with pytest.raises(ValueError, match=r"^as it was$"), bp.capture(model) as acts:
        model(vector())
    assert attached(model) == 0 and _get_current_function_mode_stack() == []
    assert list(acts) == ["0"]
    assert acts.unseen == {"1": "raised ValueError", "": "raised ValueError", "2": "not called"}
    with pytest.raises(KeyError, match="nothing was captured under '1': raised ValueError"):
        acts["1"]


def test_an_error_while_hooks_are_put_on_leaves_none() -> None:
    class Refuses(nn.Linear):
        def register_forward_hook(self, *args, **kwargs):
            raise TypeError("no hooks here")

    model = nn.Sequential(nn.Linear(2, 2), Refuses(2, 2))
    with pytest.raises(TypeError, match="no hooks here"), bp.capture(model):
        pass
    assert attached(model) == 0 and _get_current_function_mode_stack() == []


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_beside_the_users_own_hooks() -> None:
    """Torch's full backward hooks pass tensors through a function of their own; forward hooks replace outputs."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    seen = {}
    model[1].register_full_backward_hook(lambda m, gi, go: seen.update(inside=gi[0], out=go[0]))
    model[0].register_forward_hook(lambda m, args, out: out * 3)
    acts = bp.capture(model, torch.ones(2, 4), with_inputs=True, lines=True)
    acts.output.square().sum().backward()
    assert torch.equal(acts["1"], acts["0"].tanh())
    assert torch.equal(acts.grads["1"], seen["out"]) and torch.equal(acts.grads["1<in>/0"], seen["inside"])
    assert torch.equal(acts.grads["0"], seen["inside"])


def test_one_capture_in_another() -> None:
    model, x = model_of("in place on a view")
    with bp.capture(model) as outer:
        with bp.capture(model, lines=True) as inner:
            out = model(x)
        out.square().sum().backward()
    for name in outer:
        assert torch.equal(outer[name], inner[name]) and torch.equal(outer.grads[name], inner.grads[name])
    _, expected = oracle(model, x, "1")
    torch.testing.assert_close(outer.grads["1"], expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:`torch.jit")
def test_export_and_tracing_go_on_as_without() -> None:
    model, x = model_of("mlp")
    with bp.capture(model):
        program = torch.export.export(model, (x,))
        traced = torch.jit.trace(model, x)
    assert torch.equal(program.module()(x), model(x)) and torch.equal(traced(x), model(x))
    plain = torch.export.export(model, (x,))
    assert [n.target for n in program.graph.nodes] == [n.target for n in plain.graph.nodes]


def test_under_a_transform_of_torch_func() -> None:
    model = nn.Linear(2, 2)
    with bp.capture(model) as acts:
        torch.func.grad(lambda x: model(x).sum())(torch.ones(2))
    assert list(acts) == []
    assert acts.unseen == {"": "inside a torch.func transform, whose tensors end with it"}


def oracle_grad(case: str, name: str) -> torch.Tensor:
    model, x = model_of(case)
    return oracle(model, x, name)[1]


def test_it_composes_with_a_trace() -> None:
    results = []
    for both in (False, True):
        model, x = model_of("residual")
        with bp.trace(model) as trace:
            if both:
                with bp.capture(model) as acts:
                    model(x).square().sum().backward()
            else:
                model(x).square().sum().backward()
        results.append([p.grad for p in model.parameters()])
        assert trace.findings == []
        assert len(trace.steps) == 1
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert torch.equal(acts.grads["conv1"], oracle_grad("residual", "conv1"))
