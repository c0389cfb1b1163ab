"""Parameters whose updates are tiny in the whole run, on real models, or from a step on."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.observe.trackers.update_sizes import UpdateSizeTracker
from backprobe.records import ParameterStat, Step, TinyUpdates


def trained(rates: tuple[float, float], steps: int = 30, settings: Settings | None = None) -> dict[str, TinyUpdates]:
    """Train two layers with a rate each, and return the records by parameter."""
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    nn.init.zeros_(model[2].bias)
    groups = [{"params": list(part.parameters()), "lr": rate} for part, rate in zip(model[::2], rates, strict=True)]
    optimizer = torch.optim.SGD(groups)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sub(1).square().mean().backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return {one.parameter: one for one in collector.trace(session).facts.of(TinyUpdates)}


def test_tiny_updates_are_counted_and_others_are_not() -> None:
    found = trained((1e-8, 0.1))
    assert {"0.weight", "0.bias"} <= found.keys() and "2.weight" not in found and "2.bias" not in found
    weight = found["0.weight"]
    assert weight.steps >= 1 and 0 < weight.largest < 1e-7
    assert weight.first <= weight.largest and weight.last <= weight.largest


def test_a_single_larger_update_takes_a_parameter_out() -> None:
    assert not trained((0.1, 0.1))


@pytest.mark.parametrize("settings", [Settings(budget=0.05), Settings("minimal")])
def test_sampled_steps_are_enough(settings: Settings) -> None:
    found = trained((1e-8, 1e-8), steps=60, settings=settings)
    assert all(one.largest < 1e-6 for one in found.values())
    assert settings.level == "minimal" or found["0.weight"].steps >= 1


def test_a_budget_of_nothing_leaves_samples_at_doubling_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backprobe.observe.schedule.samples._clock", itertools.count().__next__)  # a second per sample
    found = trained((1e-8, 1e-8), steps=70, settings=Settings(budget=1e-9))["0.weight"]
    assert found.steps >= 7 and found.until >= 35


def test_updates_that_become_tiny_and_larger_again() -> None:
    tracker = UpdateSizeTracker(None)  # type: ignore[arg-type]
    for step, update in enumerate((1e-2, 1e-8, 1e-3, 1e-7, 3e-8, 2e-8)):
        tracker.step_ended(Step(step, 0.1, 1.0, (), (ParameterStat("w", 1.0, 0.1, update),)))
    assert list(tracker.records()) == [TinyUpdates("w", 3, 1e-7, 1e-7, 1e-7, 3, 5)]
    tracker.step_ended(Step(6, 0.1, 1.0, (), (ParameterStat("w", 1.0, 0.1, 1e-2),)))
    assert not list(tracker.records())
