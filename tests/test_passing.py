"""Steps that pass: so short that a budget does not pay for looking at each."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_budget import AT, SPOILS, STEPS, Net, spend, train, watched
from torch import nn

from backprobe.observe.schedule import budget as budgets
from backprobe.observe.schedule.budget import Budget
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.collect import Collector
from backprobe.source.first_runs import SHOWS
from backprobe.torchside import engine_calls


@pytest.fixture(autouse=True)
def nothing_to_spend(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is recorded but the first three, and those that trouble asks for; nearly all others pass."""
    monkeypatch.setattr(budgets, "FREE", 0.0)
    monkeypatch.setattr(budgets, "MOST", 10**9)
    monkeypatch.setattr(budgets, "BLIND", float("inf"))


def stretches(budget: Budget, steps: int, alone: float, heard: float, passing: float) -> None:
    """So many steps, none of them recorded."""
    while budget.steps < steps:
        budget.step_over(alone + heard, heard, False, False)
        if count := budget.lets_pass():
            budget.have_passed(count, count * (alone + passing), count * passing)


@pytest.mark.parametrize("alone", [1e-4, 2e-4, 5e-4, 1e-3, 1e-2])
def test_steps_that_are_not_recorded_leave_room_in_the_budget(alone: float) -> None:
    budget = Budget(0.05)
    stretches(budget, 50_000, alone, heard=1e-4, passing=5e-6 if alone > 3e-4 else 2e-6)
    assert budget.spent <= 0.9 * 0.05 * budget.alone
    assert (budget.passed == 0) == (alone == 1e-2)


def test_where_even_passing_costs_too_much_nothing_is_looked_at() -> None:
    budgets.BLIND = 0.7
    budget = Budget(0.05)
    budget.step_over(2e-4, 1e-4, False, False)
    budget.have_passed(10, 10 * 1.2e-4, 10 * 2e-5)
    assert budget.lets_pass() and budget.blind
    for _ in range(100):  # it is tried again some day
        budget.have_passed(10, 10 * 1e-4, 0.0)
        budget.lets_pass()
        if not budget.blind:
            break
    assert not budget.blind


def test_how_many_pass_fits_no_period() -> None:
    budget = Budget(0.05)
    budget.step_over(2e-4, 1e-4, False, False)
    counts = {budget.lets_pass() for _ in range(200)}
    assert len(counts) > 10 and max(counts) <= 1.5 * budgets.FAR


def test_what_is_recorded_stays_within_the_budget() -> None:
    budgets.MOST = 1000
    budget = Budget(0.05)
    assert sum(spend(budget, 100, alone=0.01, recorded=0.02))
    assert budget.passed == 0


@pytest.mark.parametrize("kind", [*(one for one in SPOILS if one != "nonfinite-backward"), "second-backward"])
def test_what_goes_wrong_in_a_step_that_passes_is_told_as_in_any_other(kind: str) -> None:
    every, _, alone = watched(None, lambda: train(Net(), kind))
    some, session, raised = watched(1e-9, lambda: train(Net(), kind))
    assert session.budget.passed > 20 and session.budget.recorded < 20
    assert type(alone) is type(raised) and str(alone) == str(raised)
    best, found = every.findings[0], some.findings[0]
    assert (found.kind, found.step) == (best.kind, best.step) == (kind, AT)
    if SHOWS:
        wanted = {(site.role, site.site.line) for site in best.sites}
        assert {(site.role, site.site.line) for site in found.sites} == wanted
        assert found.module == best.module and best.node in (None, found.node)


def test_a_healthy_run_is_silent_and_its_bits_are_the_same() -> None:
    torch.manual_seed(0)
    plain = train(Net())
    after = torch.rand(1), random.random()
    random.seed(1)
    kept: list[torch.Tensor] = []
    trace, session, raised = watched(1e-9, lambda: kept.extend(train(Net())))
    assert raised is None and trace.findings == []
    assert all(torch.equal(a, b) for a, b in zip(plain, kept, strict=True))
    assert torch.equal(torch.rand(1), after[0])
    assert session.budget.steps == session._steps.index == STEPS and session.calls == STEPS
    assert trace.watched.passed == session.budget.passed > 20
    assert "were too short to be looked at but for their loss" in trace.sampled
    assert torch.autograd._engine_run_backward is engine_calls.own  # type: ignore[attr-defined]


def with_two_optimizers(model: nn.Module) -> Callable[[], Any]:
    parts = [torch.optim.SGD(part.parameters(), 1e-3) for part in model.children() if isinstance(part, nn.Linear)]

    def step() -> None:
        model(torch.ones(2, 4)).square().mean().backward()
        for optimizer in parts:
            optimizer.step()
            optimizer.zero_grad()

    return step


def in_two_parts(model: nn.Module) -> Callable[[], Any]:
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> None:
        for _ in range(2):
            model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def by_hand(model: nn.Module) -> Callable[[], Any]:
    def step() -> None:
        model(torch.ones(2, 4)).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 1e-3 * p.grad  # type: ignore[operator]
                p.grad = None

    return step


def by_closure(model: nn.Module) -> Callable[[], Any]:
    optimizer = torch.optim.LBFGS(model.parameters(), 1e-3, max_iter=2)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


@pytest.mark.parametrize("make", [with_two_optimizers, in_two_parts, by_hand, by_closure])
def test_steps_are_counted_in_loops_of_all_kinds(make: Callable[[nn.Module], Callable[[], Any]]) -> None:
    counts = []
    for budget in (None, 1e-9):
        torch.manual_seed(0)
        step = make(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)))
        session = Session(Collector(), Settings(budget=budget))
        session.start()
        for _ in range(60):
            step()
        session.stop()
        assert session.error is None, repr(session.error)
        counts.append((session._steps.index, session.calls))
    assert counts[0] == counts[1] and session.budget.passed > 20 and session.budget.steps == 60


def test_a_pause_ends_what_passes() -> None:
    step = in_two_parts(nn.Linear(4, 1))
    session = Session(Collector(), Settings(budget=1e-9))
    session.start()
    for _ in range(10):
        step()
    assert session._steps.passing > 1
    session.pause()
    assert session._steps.passing == 0 and session.budget.steps == 10
    for _ in range(10):
        step()
    session.resume()
    for _ in range(30):
        step()
    session.stop()
    assert session.error is None and session._steps.index == session.budget.steps == 40


def test_an_optimizer_that_writes_what_a_backward_needs_is_named_where_steps_pass() -> None:
    def loop() -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        for i in range(STEPS):
            loss = model(torch.ones(2, 4)).square().mean()
            loss.backward(retain_graph=i == AT)
            optimizer.step()
            if i == AT:
                loss.backward()

    for budget in (None, 1e-9):
        trace, session, raised = watched(budget, loop)
        assert raised is not None
        found = trace.findings[0]
        assert found.kind == "inplace" and any("optimizer.step()" in site.site.text for site in found.sites)
    assert session.budget.passed > 20
