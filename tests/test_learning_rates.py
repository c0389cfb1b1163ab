"""Learning rates that are zero: from which step on, by which schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import LoadedRate, LossGrowth, NegativeRate, RaisedRate, ZeroRate


def trained(
    schedule: Callable[[torch.optim.Optimizer], Any] | None,
    rates: tuple[float, ...] = (0.1,),
    steps: int = 100,
    settings: Settings | None = None,
) -> list[ZeroRate]:
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    groups = [{"params": list(part.parameters()), "lr": lr} for part, lr in zip(model[::2], rates, strict=False)]
    optimizer = torch.optim.SGD(groups if len(rates) > 1 else model.parameters(), lr=rates[0])
    made = schedule(optimizer) if schedule is not None else None
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if made is not None:
            made.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return list(collector.trace(session).facts.of(ZeroRate))


def whole_numbers(step: int) -> float:
    return (100 - step) // 100


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings("minimal"), Settings(budget=0.05)])
def test_a_factor_in_whole_numbers(settings: Settings) -> None:
    (found,) = trained(lambda optimizer: lr_scheduler.LambdaLR(optimizer, whole_numbers), settings=settings)
    assert 1 <= found.step <= 40
    assert (found.rate, found.highest, found.unchanged, found.scheduler) == (0.0, 0.1, True, "LambdaLR")
    assert found.given is not None and found.given.text == "return (100 - step) // 100"


def test_rates_that_fade_and_rates_of_zero() -> None:
    (fades,) = trained(lambda optimizer: lr_scheduler.ExponentialLR(optimizer, gamma=0.3))
    assert 0 < fades.rate < 1e-13 and fades.scheduler == "ExponentialLR"
    (never,) = trained(None, (0.0,))
    assert (never.step, never.steps, never.highest) == (0, 100, 0.0)


def test_a_part_whose_rate_becomes_zero() -> None:
    factors = [lambda step: 1.0, lambda step: 1.0 if step < 10 else 0.0]
    (found,) = trained(lambda optimizer: lr_scheduler.LambdaLR(optimizer, factors), (0.1, 0.1))
    assert (found.groups, found.of, found.step) == (1, 2, 10)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 100), (0.1,)),
        (lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 5), (0.1,)),
        (lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 80)), (0.1,)),
        (lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: step // 60), (0.1,)),
        (lambda optimizer: lr_scheduler.StepLR(optimizer, 20, gamma=0.1), (0.1,)),
        (None, (0.1, 0.0)),
    ],
    ids=["cosine", "restarts", "ends at zero", "warm-up", "steps", "a group of its own"],
)
def test_schedules_as_intended_are_silent(schedule: Any, rates: tuple[float, ...]) -> None:
    assert trained(schedule, rates) == []


def second_stage(change: Callable[[torch.optim.Optimizer], Any]) -> list[LoadedRate]:
    """Return the records of a run that loads the state of a cosine schedule that has ended."""
    model = nn.Linear(4, 1)
    first = torch.optim.Adam(model.parameters(), lr=1e-2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(first, T_max=5, eta_min=1e-6)
    for _ in range(5):
        first.step()
        cosine.step()
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    optimizer.load_state_dict(first.state_dict())
    made = change(optimizer)
    for _ in range(60):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if made is not None:
            made.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return list(collector.trace(session).facts.of(LoadedRate))


def test_a_loaded_rate_that_stays() -> None:
    (found,) = second_stage(lambda optimizer: None)
    assert (found.given, found.begin, found.step, found.steps) == (5e-3, 1e-2, 0, 60)
    assert found.rate == pytest.approx(1e-6) and found.made is not None
    assert found.loaded is not None and "optimizer.load_state_dict" in found.loaded.text


def test_a_rate_that_a_scheduler_changes_is_not_left_over() -> None:
    assert second_stage(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10)) == []


@pytest.mark.parametrize("maximize", [False, True])
def test_a_rate_that_a_schedule_takes_below_zero(maximize: bool) -> None:
    model = nn.Linear(4, 1)
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, maximize=maximize)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 20)
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        schedule.step()
    session.stop()
    assert session.error is None, repr(session.error)
    facts = collector.trace(session).facts
    found = facts.of(NegativeRate)
    assert facts.of(ZeroRate) == ()  # a negative rate is not zero
    if maximize:
        assert found == ()
        return
    (one,) = found
    assert (one.step, one.steps, one.groups, one.of, one.scheduler) == (21, 9, 1, 1, "LambdaLR")
    assert one.lowest == pytest.approx(-0.45e-3) and one.given is not None and "1 - step / 20" in one.given.text


def diverging(
    schedule: Callable[[torch.optim.Optimizer], Any] | None, settings: Settings, rate: float = 0.05, steps: int = 250
) -> tuple[tuple[RaisedRate, ...], tuple[LossGrowth, ...]]:
    """Return the records of a linear regression, whose loss grows if the rate is above about 1."""
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, settings)
    session.start()
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    made = schedule(optimizer) if schedule is not None else None
    for _ in range(steps):
        if made is None:
            optimizer.param_groups[0]["lr"] *= 1.02
        x = torch.randn(64, 8)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :1] + 0.1 * torch.randn(64, 1)).backward()
        optimizer.step()
        if made is not None:
            made.step()
    session.stop()
    assert session.error is None, repr(session.error)
    facts = collector.trace(session).facts
    return facts.of(RaisedRate), facts.of(LossGrowth)


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings("minimal"), Settings(budget=0.05)])
@pytest.mark.parametrize("by_schedule", [True, False])
def test_a_rate_that_is_raised_until_the_loss_overflows(settings: Settings, by_schedule: bool) -> None:
    def schedule(optimizer: torch.optim.Optimizer) -> Any:
        return lr_scheduler.ExponentialLR(optimizer, gamma=1.02)

    (raised,), (grown,) = diverging(schedule if by_schedule else None, settings)
    assert raised.base == pytest.approx(0.05, rel=0.03) and raised.rates[-1][1] > 1.0
    assert [step for step, _ in raised.rates] == sorted(step for step, _ in raised.rates)
    assert (raised.assigned is not None) is not by_schedule
    assert grown.until - grown.since >= 10 and grown.last > 1e30
    assert list(grown.medians) == sorted(grown.medians)


def test_a_warm_up_raises_no_rate_and_a_loss_that_falls_does_not_grow() -> None:
    settings = Settings(budget=None)
    warm_up = diverging(lambda optimizer: lr_scheduler.LinearLR(optimizer, 0.01, total_iters=20), settings, steps=50)
    assert warm_up == ((), ())
    one_cycle = diverging(lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=50), settings, steps=50)
    assert [one.base for one in one_cycle[0]] == [pytest.approx(0.05)] and one_cycle[1] == ()
