"""Derivatives without a graph in the residual of a differential equation, and other uses of such derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import LostTerm

Loss = Callable[[nn.Module], torch.Tensor]


def watched(loss_of: Loss, settings: Settings | None = None, steps: int = 4) -> Any:
    """The trace of some steps that train a network of one input."""
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    assert session.events.faults.unseen() == []
    return collector.trace(session)


def points() -> torch.Tensor:
    return torch.rand(16, 1).requires_grad_()


def of_a_time(model: nn.Module) -> torch.Tensor:
    t = points()
    u = model(t)
    (rate,) = torch.autograd.grad(u.sum(), t, retain_graph=True)  # cut
    return (rate - u * (1 - u)).square().mean()  # term


def scaled_and_compared(model: nn.Module) -> torch.Tensor:
    t = points()
    u = model(t)
    rate = torch.autograd.grad(u, t, torch.ones_like(u), retain_graph=True)[0]  # cut
    return F.mse_loss(0.5 * rate, -u) + model(torch.zeros(1, 1)).square().sum()  # term


def one_of_two(model: nn.Module) -> torch.Tensor:
    """The first derivative has a graph, and the second one has none."""
    x = points()
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), x, retain_graph=True)  # cut
    return (u * slope - 0.1 * curvature).abs().mean()  # term


@pytest.mark.parametrize("loss_of", [of_a_time, scaled_and_compared, one_of_two], ids=lambda one: one.__name__)
def test_a_derivative_that_is_a_constant(loss_of: Loss) -> None:
    (found,) = watched(loss_of).findings
    assert (found.kind, found.step) == ("loss-term-without-graph", 0)
    assert [(site.role, site.site.text.partition("# ")[2]) for site in found.sites] == [
        ("cut", "cut"),
        ("term", "term"),
    ]
    assert found.title.startswith("a derivative in the loss is a constant")


def with_its_graph(model: nn.Module) -> torch.Tensor:
    t = points()
    u = model(t)
    (rate,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    return (rate - u * (1 - u)).square().mean()


def step_along_a_gradient(model: nn.Module) -> torch.Tensor:
    x = points()
    (slope,) = torch.autograd.grad(model(x).square().sum(), x)
    return model(x + 0.1 * slope.sign()).square().mean() + model(x - 0.1 * slope).square().mean()


def first_order_meta_learning(model: Any) -> torch.Tensor:
    x = torch.rand(16, 1)
    weights = dict(model.named_parameters())
    grads = torch.autograd.grad(model(x).square().mean(), list(weights.values()))
    fast = {name: w * 0.99 - 0.1 * g for (name, w), g in zip(weights.items(), grads, strict=True)}
    return torch.func.functional_call(model, fast, (x,)).square().mean()


def slope_of_another_function(model: nn.Module) -> torch.Tensor:
    x = points()
    (wanted,) = torch.autograd.grad(x.sin().sum(), x)
    return (model(x) - wanted).square().mean()


def weights_by_slope(model: nn.Module) -> torch.Tensor:
    x = points()
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, retain_graph=True)
    return (slope.abs() * u.square()).mean()


@pytest.mark.parametrize(
    "loss_of",
    [with_its_graph, step_along_a_gradient, first_order_meta_learning, slope_of_another_function, weights_by_slope],
    ids=lambda one: one.__name__,
)
def test_a_derivative_that_is_meant_so(loss_of: Loss) -> None:
    assert watched(loss_of).facts.of(LostTerm) == ()


def test_one_that_begins_late() -> None:
    calls = iter(range(10_000))

    def loss_of(model: nn.Module) -> torch.Tensor:
        return with_its_graph(model) if next(calls) < 60 else of_a_time(model)

    trace = watched(loss_of, Settings(budget=0.05), 400)
    (found,) = (one for one in trace.findings if one.kind == "loss-term-without-graph")
    assert found.step is not None and found.step >= 60
