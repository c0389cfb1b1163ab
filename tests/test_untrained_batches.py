"""Running statistics that follow batches which train nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerator import stand_in
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import UntrainedBatches

#: What a script does after a step: it is given the model, and the number of the step.
Between = Callable[[nn.Module, int], object]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))


def trained(between: Between, steps: int = 60, settings: Settings | None = None, make: Any = network) -> Any:
    """A run that calls `between` after each step; the model is gone when it ends."""
    torch.manual_seed(0)
    model = make()
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for n in range(steps):
        model.train()
        loss = model(torch.randn(16, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        between(model, n)
    del model, optimizer, loss
    gc.collect()
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session)


def kinds(trace: Any) -> list[str]:
    return [found.kind for found in trace.findings]


@torch.no_grad()
def monitor(model: nn.Module, n: int) -> None:
    for _ in range(6 if n % 8 == 3 or n == 59 else 0):
        model(3 * torch.randn(16, 4) + 4)


@torch.inference_mode()
def monitor_in_inference_mode(model: nn.Module, n: int) -> None:
    model.train()
    for _ in range(8 if n % 8 == 3 or n == 59 else 0):
        model(3 * torch.randn(16, 4) + 4)


def each_step(model: nn.Module, n: int) -> None:
    with torch.no_grad():
        sum(model(torch.randn(16, 4) + 6).mean() for _ in range(2))


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings()])
@pytest.mark.parametrize(
    ("between", "line"),
    [
        (monitor, "model(3 * torch.randn(16, 4) + 4)"),
        (monitor_in_inference_mode, "model.train()"),
        (each_step, "sum(model(torch.randn(16, 4) + 6).mean() for _ in range(2))"),
    ],
)
def test_batches_of_other_data(settings: Settings, between: Between, line: str) -> None:
    (found,) = trained(between, settings=settings).findings
    assert (found.kind, found.severity, found.confidence) == ("statistics-of-other-data", "warning", "likely")
    assert found.sites[0].role == "cause" and found.sites[0].site.text == line
    assert found.parameters == ("1.running_mean", "1.running_var")


@torch.no_grad()
def evaluated(model: nn.Module, n: int) -> None:
    model.eval()
    model(3 * torch.randn(16, 4) + 4)


@torch.no_grad()
def same_data(model: nn.Module, n: int) -> None:
    for _ in range(4 if n % 8 == 3 else 0):
        model(torch.randn(16, 4))


@torch.no_grad()
def only_at_the_end(model: nn.Module, n: int) -> None:
    for _ in range(40 if n == 59 else 0):
        model(3 * torch.randn(16, 4) + 4)


@torch.no_grad()
def fades(model: nn.Module, n: int) -> None:
    """Run one other batch every twenty steps, so that nothing of it is left in an evaluation 16 steps later."""
    if n % 20 == 3:
        model(torch.randn(16, 4) + 3)
    elif n % 20 == 19:
        evaluated(model, n)


@torch.no_grad()
def put_back(model: nn.Module, n: int) -> None:
    if n % 8 == 3:
        kept = {name: value.clone() for name, value in model.state_dict().items()}
        for _ in range(6):
            model(3 * torch.randn(16, 4) + 4)
        model.load_state_dict(kept)


def trains_on_both(model: nn.Module, n: int) -> None:
    """Another loss on other data, whose gradients are used."""
    model(3 * torch.randn(16, 4) + 4).square().mean().backward()


@pytest.mark.parametrize(
    "between", [evaluated, same_data, only_at_the_end, fades, put_back, trains_on_both], ids=lambda one: one.__name__
)
def test_batches_that_do_no_harm(between: Between) -> None:
    assert "statistics-of-other-data" not in kinds(trained(between))


def test_layers_without_running_statistics() -> None:
    def make() -> nn.Module:
        norm = nn.BatchNorm1d(8, track_running_stats=False)
        return nn.Sequential(nn.Linear(4, 8), norm, nn.LayerNorm(8), nn.BatchNorm1d(8, momentum=0.0), nn.Linear(8, 1))

    trace = trained(monitor, make=make)
    assert not trace.facts.of(UntrainedBatches) and "statistics-of-other-data" not in kinds(trace)


def test_a_cumulative_average() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=None), nn.Tanh(), nn.Linear(8, 1))

    assert kinds(trained(each_step, make=make)) == ["statistics-of-other-data"]


def test_nothing_waits_for_an_accelerator() -> None:
    def evaluates_too(model: nn.Module, n: int) -> None:
        monitor(model, n)
        if n % 10 == 5:
            evaluated(model, n)

    with stand_in() as waits:
        trace = trained(evaluates_too)
    assert not waits.calls and kinds(trace) == ["statistics-of-other-data"]
