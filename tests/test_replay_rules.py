"""A replay by other rules: guided backpropagation, relevance, noise."""

from __future__ import annotations

import pytest
import torch
from replaying import engine, net
from torch import nn

import backprobe
from backprobe import BackprobeError, replay_rules


def relu_by_hooks(model, x, clamp) -> torch.Tensor:
    """The independent way: full backward hooks on the ReLU modules."""
    handles = [
        m.register_full_backward_hook(lambda mod, gi, go: (clamp(gi[0], go[0]),))
        for m in model.modules()
        if isinstance(m, nn.ReLU)
    ]
    x = x.detach().clone().requires_grad_()
    model(x)[:, 1].sum().backward()
    for handle in handles:
        handle.remove()
    return x.grad


def test_guided_backpropagation_against_module_hooks() -> None:
    model, x = net()
    score = model(x)[:, 1].sum()
    plain = backprobe.replay(score).finish()[x]
    guided = backprobe.replay(score, rules={"ReluBackward0": replay_rules.guided}).finish()[x]
    assert torch.equal(guided, relu_by_hooks(model, x, lambda gi, go: gi.clamp(min=0)))
    assert not torch.equal(plain, guided)
    deconvnet = backprobe.replay(score, rules={"Relu*": replay_rules.deconvnet}).finish()[x]
    assert torch.equal(deconvnet, relu_by_hooks(model, x, lambda gi, go: go.clamp(min=0)))


def test_relevance_is_conserved_and_is_the_closed_form() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 7, bias=False), nn.ReLU(), nn.Linear(7, 4, bias=False)).double()
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    out = model(x)
    eps = 1e-9
    rules = {"MmBackward0": Linear(eps), "ReluBackward0": replay_rules.straight_through}
    relevance = backprobe.replay(out, out.detach(), rules=rules).finish()[x]
    torch.testing.assert_close(relevance.sum(1), out.detach().sum(1), rtol=1e-6, atol=1e-6)

    def layer(a, weight, r):
        z = a[:, None, :] * weight[None]  # what each input adds to each output
        total = z.sum(2)
        total = total + eps * torch.where(total >= 0, 1.0, -1.0)
        return (z * (r / total)[:, :, None]).sum(1)

    with torch.no_grad():
        hidden = model[1](model[0](x))
        r = layer(hidden, model[2].weight, out)
        r = layer(x, model[0].weight, r)
    torch.testing.assert_close(relevance, r)


class Linear:
    """The epsilon rule for a layer without bias, written by a user."""

    def __init__(self, eps):
        self.eps = eps

    def __call__(self, node, grads, call):
        x, weight = call.saved["self"], call.saved["mat2"]
        z = x @ weight
        back = call(grads[0] / (z + self.eps * torch.where(z >= 0, 1.0, -1.0)))
        return x * back[0], None


def test_the_epsilon_rule_for_layers_with_bias() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4)).double()
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    out = model(x)
    rules = {"AddmmBackward0": replay_rules.epsilon(1e-9), "ReluBackward0": replay_rules.straight_through}
    replay = backprobe.replay(out, out.detach(), rules=rules)
    found = replay.finish()[x]
    hidden = model[1](model[0](x))
    with torch.no_grad():  # what is missing is what the biases have got
        at = out / out
        biases = (at * model[2].bias).sum(1)
        r = hidden * ((out / out) @ model[2].weight)
        biases += (r / model[0](x) * model[0].bias).sum(1)
    torch.testing.assert_close(found.sum(1) + biases, out.detach().sum(1), rtol=1e-5, atol=1e-5)
    text = str(replay.compare())
    assert "it ran by rule AddmmBackward0" in text


def test_noise_is_repeatable_and_touches_no_random_state() -> None:
    model, x = net()
    loss = model(x).square().mean()
    state = torch.get_rng_state()
    noisy = {"AddmmBackward0": replay_rules.noise(0.1)}
    replay = backprobe.replay(loss, rules=noisy)
    first = replay.finish()[x].clone()
    assert torch.equal(state, torch.get_rng_state())
    replay.goto(0)
    assert torch.equal(replay.finish()[x], first)
    plain = engine(loss)[x]
    error = (first - plain).norm() / plain.norm()
    assert 0.02 < error < 0.5
    drawn = replay_rules.noise(1.0, torch.Generator().manual_seed(3))
    one = drawn(None, (torch.full((20000,), 3.0),), lambda g: (g,))[0] - 3.0
    assert abs(float(one.std()) - 3.0) < 0.1


def test_rules_by_module_and_what_they_may_give() -> None:
    model, x = net()
    with backprobe.trace(model):
        loss = model(x).square().mean()
        replay = backprobe.replay(loss, rules={"module 1": lambda node, grads, call: grads[0] * 0})
    found = replay.finish()
    assert found[x].abs().max() == 0
    assert torch.equal(found[model[4].weight], engine(loss)[model[4].weight])
    for rules, text in (
        ({"Relu*": lambda n, g, c: (g[0], g[0])}, "gave 2 gradients; the node has 1 inputs"),
        ({"Relu*": lambda n, g, c: 3}, "'int' object is not iterable"),
        ({"Relu*": lambda n, g, c: ("x",)}, "gave a str for input 0"),
        ({"Relu*": 3}, "the rule for 'Relu\\*' is a int; it is a function"),
        ({"Tanh*": replay_rules.guided}, "no node type fits 'Tanh\\*'"),
        ({"norm > 3": replay_rules.guided}, "cannot have a condition"),
        ({"param *": replay_rules.guided}, "accumulators only"),
        (3, "rules is a int"),
    ):
        with pytest.raises((BackprobeError, TypeError), match=text):
            backprobe.replay(loss, rules=rules, model=model).finish()
    with pytest.raises(RuntimeError, match="invalid gradient at index 0"):
        backprobe.replay(loss, rules={"Relu*": lambda n, g, c: g[0][:, :3]}).finish()
