"""Second derivatives of real networks: those that are zero because of an activation, and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import backprobe


def found_in(activation: Callable[[], nn.Module], loss: Callable[[nn.Module, Any], Any]) -> list[Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), activation(), nn.Linear(8, 8), activation(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with backprobe.trace(model) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            loss(model, torch.randn(16, 2, requires_grad=True)).backward()
            optimizer.step()
    return [one for one in trace.findings if one.kind == "second-derivative-zero"]


def laplacian(model: nn.Module, x: Any) -> Any:
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    second = [torch.autograd.grad(slope[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(2)]
    return (sum(second) + u[:, 0]).square().mean()


def of_a_view(model: nn.Module, x: Any) -> Any:
    """The derivative by a tensor that is no leaf."""
    place = x * 2
    u = model(place)
    (slope,) = torch.autograd.grad(u.sum(), place, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), place, create_graph=True)
    return (second.sum(dim=1) + u[:, 0]).square().mean()


def penalty(model: nn.Module, x: Any) -> Any:
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return u.mean() + (slope.norm(dim=1) - 1).square().mean()


def product_with_hessian(model: nn.Module, x: Any) -> Any:
    loss = model(x).square().mean()
    weights = list(model.parameters())
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    product = torch.autograd.grad(sum(g.sum() for g in gradients), weights, create_graph=True, allow_unused=True)
    return loss + 1e-3 * sum(one.square().sum() for one in product if one is not None)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh])
@pytest.mark.parametrize("loss", [laplacian, of_a_view])
def test_piecewise_linear_activations(activation: type[nn.Module], loss: Callable[..., Any]) -> None:
    found = found_in(activation, loss)
    assert found and all(one.confidence == "certain" and {*one.evidence["modules"]} <= {"1", "3"} for one in found)
    assert found[0].module in ("1", "3")
    assert found[0].sites[0].site.text == "u = model(x)" if loss is laplacian else "u = model(place)"


@pytest.mark.parametrize("loss", [laplacian, of_a_view])
def test_smooth_activations(loss: Callable[..., Any]) -> None:
    assert found_in(nn.Tanh, loss) == [] and found_in(nn.SiLU, loss) == []


@pytest.mark.parametrize("loss", [penalty, product_with_hessian])
def test_derivatives_for_which_relu_is_good_enough(loss: Callable[..., Any]) -> None:
    assert found_in(nn.ReLU, loss) == []
