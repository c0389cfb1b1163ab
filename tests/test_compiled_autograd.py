"""Compiled autograd: no hooks on nodes, and failures located from the graph before and after the backward call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiling import reset_dynamo
from torch import nn

import backprobe
from backprobe.torch_internals import private

dynamo = pytest.importorskip("torch._dynamo")
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("fresh_dynamo")]


class Net(nn.Module):
    """A model that makes a non-finite value in its forward or its backward, as `how` says."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, how: str = "") -> torch.Tensor:
        h = self.first(x)
        if how == "backward":
            h = torch.sqrt(h * (h > 0))  # BACKWARD
        if how == "forward":
            h = torch.log(h.detach() - 100) * h  # FORWARD
        return self.last(h)


def line_of(marker: str) -> int:
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, line in enumerate(file, 1) if line.rstrip().endswith(f"# {marker}"))


def train(net: Net, forward: Callable[..., Any], how: str, steps: int, bad: int) -> None:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        for step in range(steps):
            optimizer.zero_grad()
            loss = forward(torch.randn(16, 4), how if step >= bad else "").square().mean()
            loss.backward()
            optimizer.step()


@pytest.mark.parametrize("budget", [None, "5%"])
@pytest.mark.parametrize("how", ["backward", "forward"])
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_failures_have_their_line(backend: str | None, how: str, budget: str | None) -> None:
    net = Net()
    forward = net if backend is None else torch.compile(net, backend=backend)
    with backprobe.trace(net, budget=budget) as trace:
        train(net, forward, how, steps=6 if budget is None else 30, bad=3 if budget is None else 25)
    found = trace.findings[0]
    assert found.kind == f"nonfinite-{how}"
    assert [site.site.line for site in found.sites if site.role == "cause"] == [line_of(how.upper())]
    assert found.step == (3 if budget is None else 25)


def test_a_healthy_run_has_no_findings_and_no_extra_compilations() -> None:
    def bits(net: Net) -> list[bytes]:
        return [p.detach().numpy().tobytes() for p in net.parameters()]

    alone, watched = Net(), Net()
    watched.load_state_dict(alone.state_dict())
    train(alone, torch.compile(alone, backend="aot_eager"), "", 6, 6)
    graphs = dynamo.utils.counters["stats"]["unique_graphs"]
    reset_dynamo()
    with backprobe.trace(watched, budget=None) as trace:
        train(watched, torch.compile(watched, backend="aot_eager"), "", 6, 6)
    assert not trace.findings
    assert dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    assert bits(alone) == bits(watched)


def test_backward_calls_of_ours_are_not_compiled() -> None:
    x = torch.ones(3, requires_grad=True)
    with dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        with private.backward_as_it_is():
            torch.autograd.grad(x.exp().sum(), x)
            assert not private.compiles_backward()
        assert private.compiles_backward()
        assert not dynamo.utils.counters["frames"]
        torch.autograd.grad(x.exp().sum(), x)
        assert dynamo.utils.counters["frames"]
    assert not private.compiles_backward()
