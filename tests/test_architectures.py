"""Regression tests of errors that bench/zoo.py found in hundreds of architectures: modules outside the model, copies of
parameters, unused parts, and lines that create modules."""

from __future__ import annotations

import copy

import pytest
import torch
from handmade import call, leaf, only, parameter, run, traced
from torch import nn
from torch.nn import functional as F

import backprobe

STEP = call(run("SumBackward0", 1, op="sum"), leaf("a.weight"))


def modules_of(trace) -> dict[str, str | None]:
    return {
        run.name: run.module
        for run in trace.steps[-1].backwards[0].nodes
        if run.name != "torch::autograd::AccumulateGrad"
    }


# Modules outside the model.

GELU = nn.GELU()


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense, self.act = nn.Linear(4, 4), [nn.Tanh()]

    def forward(self, x):
        return GELU(self.act[0](self.dense(x)))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Head(), Head()

    def forward(self, x, labels):
        x = GELU(self.second(self.first(x)))
        return nn.CrossEntropyLoss()(x, labels)


def test_an_op_of_a_module_outside_the_model_belongs_to_its_caller() -> None:
    model = Classifier()
    with backprobe.trace(model, budget=None) as trace:
        for _ in range(3):  # the same calls in each step
            model(torch.randn(5, 4), torch.arange(5) % 4).backward()
    for step in trace.steps:
        runs = [run for run in step.backwards[0].nodes if run.name in ("GeluBackward0", "TanhBackward0")]
        assert [run.module for run in runs] == ["", "second", "second", "first", "first"]
    assert modules_of(trace)["NllLossBackward0"] == modules_of(trace)["LogSoftmaxBackward0"] == ""


def test_a_shared_module_outside_the_model_belongs_to_each_caller() -> None:
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = Head(), Head()

        def forward(self, x, left):
            return (self.left if left else self.right)(x)

    model = Either()
    with backprobe.trace(model, budget=None) as trace:
        for left in (True, False, True, False):
            model(torch.randn(5, 4), left).square().mean().backward()
    found = [{run.module for run in call.nodes if run.name == "GeluBackward0"} for call in trace.backwards]
    assert found == [{"left"}, {"right"}, {"left"}, {"right"}]


# What copies parameters cuts no path.


class Unused(nn.Module):
    """The output of ``norm`` is thrown away."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        x = self.body(x)
        self.norm(x)
        return x


def averaged(model: nn.Module, average: nn.Module) -> None:
    for one, other in zip(model.parameters(), average.parameters(), strict=True):
        other.data.mul_(0.9).add_(one.data, alpha=0.1)


@pytest.mark.parametrize(
    "copied",
    [
        lambda model, _: model.state_dict(),
        averaged,
        lambda model, _: [p.detach().norm().item() for p in model.parameters()],
    ],
    ids=["state_dict", "average", "log"],
)
def test_a_copy_of_parameters_is_not_blamed_for_missing_gradients(copied) -> None:
    model = Unused()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with backprobe.trace(model, budget=None) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
            copied(model, average)
    found = only(trace)
    assert found.evidence["reason"] == "output"
    assert "norm was called 3 times, but nothing that it returned reached the loss" in found.title


def test_a_detached_copy_that_the_loss_uses_is_a_cut() -> None:
    model = Unused()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with backprobe.trace(model, budget=None) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            x = F.layer_norm(model(torch.randn(5, 4)), (4,), model.norm.weight.detach(), model.norm.bias.detach())
            x.square().mean().backward()
            optimizer.step()
    assert all(f.title.startswith("detach cut the graph") for f in trace.findings)
    assert {name for f in trace.findings for name in f.parameters} == {"norm.weight", "norm.bias"}


# Parts that the forward never calls.


def none(*lost: str, used: tuple[str, ...] = ("a.weight",), **more):
    ps = [parameter(name) for name in used]
    ps += [parameter(name, **({"reached": 0, "alive": False, "calls": 0} | more)) for name in lost]
    return [f for f in traced(STEP, parameters=ps).findings if f.kind == "none-grad"]


def test_an_uncalled_tower_is_one_finding() -> None:
    layers = [f"tower.layers.{n}.{part}" for n in range(3) for part in ("norm.weight", "mlp.fc.weight", "mlp.fc.bias")]
    (found,) = none("tower.embed.weight", *layers)
    assert (found.module, len(found.parameters)) == ("tower", 10)
    assert found.title.startswith("nothing in tower was called: ")


def test_an_uncalled_module_in_every_layer_is_one_finding_that_does_not_blame_the_layers() -> None:
    cross = [f"layers.{n}.{part}.weight" for n in range(3) for part in ("cross.k", "cross.q", "cross_norm")]
    (found,) = none(*cross, used=tuple(f"layers.{n}.self.weight" for n in range(3)))
    assert (found.module, len(found.parameters)) == ("layers", 9)
    assert found.title.startswith(
        "nothing in layers.0.cross, layers.0.cross_norm, layers.1.cross and 3 more was called: "
    )


def test_one_uncalled_module() -> None:
    (found,) = none("pool.weight", "pool.bias")
    assert found.title == "pool was never called: pool.weight, pool.bias got no gradient"


def test_a_parameter_of_the_model_itself_is_not_reported_as_lost_with_its_output() -> None:
    """The model's output did reach the loss, because its layers learn."""
    (found,) = none("mask_emb", calls=4, used=("layers.0.weight",))
    assert found.evidence["reason"] == "unused" and found.title.startswith("mask_emb took part in no backward pass")
    (found,) = none("block.gate", calls=4, used=("block.fc.weight",))
    assert found.evidence["reason"] == "unused"


def test_a_parameter_unused_in_every_layer_of_a_stack_is_one_finding() -> None:
    names = [f"layer.{n}.attn.bias" for n in range(4)]
    (found,) = none(*names, calls=4, used=tuple(f"layer.{n}.attn.weight" for n in range(4)))
    assert found.parameters == tuple(names)


class Gated(nn.Module):
    """Uses ``gate`` where it is given edges; makes it in a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.gate = nn.Linear(4, 4), nn.Linear(4, 4)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.gate.bias)

    def forward(self, x, edges=None):
        if edges is not None:
            x = x * self.gate(edges)
        return self.body(x)


def test_the_line_that_would_use_a_module_is_not_the_line_that_creates_it() -> None:
    model = Gated()
    with backprobe.trace(model, budget=None) as trace:
        for _ in range(3):
            model(torch.randn(5, 4)).square().mean().backward()
    found = only(trace)
    assert found.kind == "none-grad"
    assert [site.site.text for site in found.sites if site.role == "cut"] == ["x = x * self.gate(edges)"]
