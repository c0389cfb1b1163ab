"""Fast-path steps: steps so short that the budget does not allow an inspection of each."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from budgeted import AT, SPOILS, STEPS, Net, spend, train, watched
from torch import nn

from backprobe.observe.schedule import budget as budgets
from backprobe.observe.schedule.budget import Budget
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.source.new_lines import SHOWS
from backprobe.torch_internals import engine_calls


@pytest.fixture(autouse=True)
def nothing_to_spend(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is recorded but the first three, and those that trouble asks for; nearly all others pass."""
    monkeypatch.setattr(budgets, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(budgets, "MAX_STEPS_BETWEEN_RECORDED", 10**9)


def stretches(budget: Budget, steps: int, alone: float, heard: float, passing: float) -> None:
    """Advance `budget` to `steps` steps, none of them recorded."""
    while budget.steps < steps:
        budget.charge_step(alone + heard, heard, False, False)
        if count := budget.next_fast_path_steps():
            budget.charge_fast_path_steps(count, count * (alone + passing), count * passing)


@pytest.mark.parametrize("alone", [1e-4, 2e-4, 5e-4, 1e-3, 1e-2])
def test_steps_that_are_not_recorded_leave_room_in_the_budget(alone: float) -> None:
    budget = Budget(0.05)
    stretches(budget, 50_000, alone, heard=1e-4, passing=5e-6 if alone > 3e-4 else 2e-6)
    assert budget.spent <= 0.9 * 0.05 * budget.script_seconds
    assert (budget.steps_without_record == 0) == (alone == 1e-2)


@pytest.mark.parametrize(("alone", "most"), [(1e-4, 1500), (1e-2, 96)])
def test_shorter_steps_take_the_fast_path_more_often(alone: float, most: int) -> None:
    """A tenth of a second of them, or 64, and half as much again at most."""
    budget = Budget(0.05)
    budget.charge_step(alone + 1e-2, 1e-2, False, False)
    budget.charge_fast_path_steps(1, 2 * alone, alone)
    counts = [budget.next_fast_path_steps() for _ in range(50)]
    assert most / 3 <= min(counts) < max(counts) <= most


def test_losses_are_always_read_and_some_steps_recorded_whatever_the_cost() -> None:
    budget = Budget(0.05)
    recorded = 0
    for _ in range(500):
        budget.charge_step(3e-4, 1e-4, recorded=budget.wants_record(), inspected=False)
        recorded += budget.wants_record()
        count = budget.next_fast_path_steps()
        assert count
        budget.charge_fast_path_steps(count, count * 2.2e-4, count * 2e-5)  # a tenth of the time
    assert recorded > 50
    passing = 2e-5 * budget.steps_without_record
    assert budget.spent - passing <= 0.05 * budget.script_seconds < passing


def test_a_short_stretch_has_little_weight_in_the_estimate_of_a_step() -> None:
    """Each stretch has a price of its own, of steps that take 10 us."""
    budget = Budget(0.05)
    budget.charge_step(1e-3, 1e-4, False, False)
    for _ in range(30):
        for steps in (60, 60, 2):
            assert budget.next_fast_path_steps()
            budget.charge_fast_path_steps(steps, steps * 1e-3, steps * 1e-5 + 1e-4)


@pytest.mark.parametrize("rest", [0.5, float("inf")])  # whether steps pass
def test_a_loss_that_stays_nonfinite_is_diagnosed_a_few_times(rest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "UNRECORDED_STEP_FRACTION", rest)
    model, steps, bad = Net(), 300, 50
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def run() -> None:
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.full((2, 4), float("nan") if step >= bad else 1.0)).square().mean().backward()
            optimizer.step()

    trace, session, _ = watched(1e-9, run)
    assert [(found.kind, found.step) for found in trace.findings] == [("nonfinite-forward", bad)]
    assert session.budget.diagnosed_failures <= budgets.MAX_CONSECUTIVE_BAD_LOSSES
    assert (
        session.budget.undiagnosed_bad_losses
        == steps - bad - budgets.MAX_CONSECUTIVE_BAD_LOSSES
        == trace.coverage.observed.only_counted
    )
    assert session.budget.steps == steps
    late = [step for step in trace.steps if step.index >= bad + budgets.MAX_CONSECUTIVE_BAD_LOSSES]
    assert not any(step.backwards for step in late)  # nothing is recorded of them
    free = Budget(0.05)
    free.diagnosed_failures, free.spent = budgets.MAX_EXPLAINED_FAILURES, 0.01
    assert not free.may_diagnose  # nothing to spend
    free.script_seconds = 1.0
    assert free.may_diagnose


@pytest.mark.parametrize("passes", [True, False])
def test_a_loss_that_recovered_is_diagnosed_again(passes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten bad steps in a row, ten good ones, and ten bad ones: three are explained each time, the others counted."""
    monkeypatch.setattr(budgets, "UNRECORDED_STEP_FRACTION", 0.5 if passes else float("inf"))
    model, bad = Net(), {*range(40, 50), *range(60, 70)}
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def run() -> None:
        for step in range(100):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean()
            (loss * float("nan") if step in bad else loss).backward()
            if step in bad:
                optimizer.zero_grad()
            optimizer.step()

    trace, session, _ = watched(1e-9, run)
    told = {call.step for call in trace.backwards if any(root.bad for root in call.roots)}
    assert told == {40, 41, 42, 60, 61, 62}
    assert session.budget.undiagnosed_bad_losses == len(bad - told) == trace.coverage.observed.only_counted


def test_a_scaler_that_searches_for_its_factor_is_still_diagnosed() -> None:
    budget = Budget(0.05)
    for _ in range(30):
        budget.count_diagnosed_loss(scaled=True)
    assert not budget.only_counts_bad_losses
    budget.count_diagnosed_loss(scaled=False)
    assert budget.only_counts_bad_losses and not budget.wants_record()
    for step in (31, 31, 32):
        budget.count_undiagnosed_loss(step)
    budget.note_finite_loss()
    assert not budget.only_counts_bad_losses and budget.undiagnosed_bad_losses == 2


def test_the_number_of_fast_path_steps_has_no_period() -> None:
    budget = Budget(0.05)
    budget.charge_step(2e-4, 1e-4, False, False)
    counts = {budget.next_fast_path_steps() for _ in range(200)}
    assert len(counts) > 10 and max(counts) <= 1.5 * budgets.MAX_FAST_PATH_STEPS


def test_recorded_steps_stay_within_the_budget() -> None:
    budgets.MAX_STEPS_BETWEEN_RECORDED = 1000
    budget = Budget(0.05)
    assert sum(spend(budget, 100, alone=0.01, recorded=0.02))
    assert budget.steps_without_record == 0


@pytest.mark.parametrize("kind", [*(one for one in SPOILS if one != "nonfinite-backward"), "second-backward"])
def test_errors_in_fast_path_steps_are_reported_like_in_other_steps(kind: str) -> None:
    every, _, alone = watched(None, lambda: train(Net(), kind))
    some, session, raised = watched(1e-9, lambda: train(Net(), kind))
    assert session.budget.steps_without_record > 20 and session.budget.recorded_steps < 20
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
    assert session.budget.steps == session.schedule.steps.index == STEPS and session.calls == STEPS
    assert trace.coverage.observed.passed == session.budget.steps_without_record > 20
    assert "were too short: their losses were checked and not kept" in trace.coverage.summary
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
        counts.append((session.schedule.steps.index, session.calls))
    assert counts[0] == counts[1] and session.budget.steps_without_record > 20 and session.budget.steps == 60


def test_a_pause_ends_a_stretch_of_fast_path_steps() -> None:
    step = in_two_parts(nn.Linear(4, 1))
    session = Session(Collector(), Settings(budget=1e-9))
    session.start()
    for _ in range(10):
        step()
    assert session.schedule.steps.fast_path_left > 1
    session.pause()
    assert session.schedule.steps.fast_path_left == 0 and session.budget.steps == 10
    for _ in range(10):
        step()
    session.resume()
    for _ in range(30):
        step()
    session.stop()
    assert session.error is None and session.schedule.steps.index == session.budget.steps == 40


@pytest.mark.parametrize("begin", range(20, 60, 5))
def test_an_optimizer_that_overwrites_a_saved_tensor_is_named_in_fast_path_steps(
    begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the last of a row of steps that pass."""
    monkeypatch.setattr(budgets, "MAX_FAST_PATH_STEPS", 4)
    monkeypatch.setattr(budgets, "MAX_FAST_PATH_SECONDS", 0.0)

    def loop() -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        for i in range(STEPS):
            loss = model(torch.ones(2, 4)).square().mean()
            loss.backward(retain_graph=i == begin)
            optimizer.step()
            if i == begin:
                loss.backward()

    for budget in (None, 1e-9):
        trace, session, raised = watched(budget, loop)
        assert raised is not None
        found = trace.findings[0]
        assert found.kind == "inplace" and any("optimizer.step()" in site.site.text for site in found.sites)
    assert session.budget.steps_without_record > begin / 2


# What begins late and stays


@pytest.fixture
def only_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is recorded but the first, and those that something new asks for; all that asks can be paid."""
    monkeypatch.setattr(budgets, "FREE_SECONDS", 1e6)
    monkeypatch.setattr(budgets, "RESERVED_FRACTION", 1.0)


def test_the_reserve_is_spent_on_requested_steps(only_asked_for: None) -> None:
    budget = Budget(1e-9)
    budget.charge_step(1.0, 0.5, True, False)
    assert not budget.wants_record() and budget.covers_requests
    before = budget.remaining_seconds - budget._reserve_s
    budget.charge_step(1.0, 0.5, True, True, requested=True)
    assert budget.remaining_seconds - budget._reserve_s == pytest.approx(before)


def test_steps_after_something_new_are_requested_as_soon_as_the_budget_allows(only_asked_for: None) -> None:
    session = Session(Collector(), Settings(budget=1e-9))
    attention, budget = session.schedule.policy.inspections, session.budget
    budget.charge_step(1.0, 0.5, True, False)
    attention.inspect_after(10)
    seen, skipped = [], 0
    for step in range(11, 100):
        assert attention.steps_until_request(step, budget) > 0
        if 15 <= step < 20:  # it cannot be paid
            budget.spent += 2e6
        if attention.wants_record(step, session.settings, budget):
            attention.begin_step(step, session.settings, True)
            seen.append(step)
        elif step in (17, 25):
            skipped += 1
        if 15 <= step < 20:
            budget.spent -= 2e6
    assert seen == [11, 12, 13, 20, 21, 29, 32, 45, 64] and skipped == 2


def late(steps: int, at: int, how: str) -> None:
    model, other = Net(), Net()
    optimizer = torch.optim.Adam([*model.parameters(), *other.parameters()], 1e-3)
    carried = None
    for i in range(steps):
        x = torch.randn(5, 4)
        h = torch.tanh(model.first(x))
        if i >= at and how == "second-backward":
            h = h + carried
        if i == at and how == "nonfinite-backward":
            h = h + (h * 0).square().sum(-1, keepdim=True).sqrt()
        carried = h.mean()
        loss = model.last(h).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("how", ["second-backward", "nonfinite-backward"])
def test_faults_that_begin_in_a_fast_path_step(how: str, only_asked_for: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "GRADIENT_CHECK_FRACTION", float("inf"))
    some, session, _ = watched(1e-9, lambda: late(170, 100, how))
    assert session.budget.steps_without_record > 40 and session.budget.recorded_steps < 60
    best = some.findings[0]
    assert (best.kind, best.step) == (how, 100)
    if how == "second-backward":
        assert "a tensor of step 99 " in best.title
    elif SHOWS:
        cause = next(site.site for site in best.sites if site.role == "cause")
        assert cause.text.startswith("h = h + (h * 0)")


def keeps(log: list[torch.Tensor], penalty: bool, steps: int = 400, at: int = 80) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for i in range(steps):
        loss = model.last(torch.tanh(model.first(torch.randn(5, 4)))).square().mean()
        if i >= at:
            parts = torch.autograd.grad(loss, [*model.first.parameters()], create_graph=True) if penalty else [loss]
            log.append(parts[0].square().sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("penalty", [False, True])
def test_graphs_retained_since_a_fast_path_step_are_found(penalty: bool) -> None:
    """Some of those that pass are marked; with calls of ``grad`` between them too."""
    log: list[torch.Tensor] = []
    trace, session, _ = watched(1e-9, lambda: keeps(log, penalty))
    assert session.budget.steps_without_record > 300 and session.budget.recorded_steps < 20
    found = next(f for f in trace.findings if f.kind == "graph-retained")
    assert "log (a list)" in found.title
    (held,) = [site.site for site in found.sites if site.role == "held"]
    assert held.text.startswith("log.append(")


def test_freed_graphs_are_not_reported_as_retained() -> None:
    latest: deque[torch.Tensor] = deque(maxlen=2)
    trace, session, _ = watched(1e-9, lambda: keeps(latest, True))  # type: ignore[arg-type]
    assert session.budget.steps_without_record > 300
    assert [(f.kind, f.parameters) for f in trace.findings] == [("none-grad", ("second.weight", "second.bias"))]


def test_a_parameter_with_the_id_of_a_freed_parameter() -> None:
    """The parameters of the first model stay known as trained when a later parameter gets the id of one of them."""
    reused: list[bool] = []

    def loop() -> None:
        net = Net()
        train(net)
        ids, last = {id(net.last.weight), id(net.last.bias)}, net.last
        net.last = nn.Linear(1, 1)
        del last
        others = []
        for _ in range(10_000):
            others.append(nn.Parameter(torch.zeros_like(net.second.bias)))
            if id(others[-1]) in ids:
                break
        later = Net()
        later.second.bias = others[-1]
        reused.append(id(later.second.bias) in ids)
        del net, others
        train(later)

    trace, session, _ = watched(1e-9, loop)
    if reused == [False]:
        pytest.skip("this allocator gives no parameter the id of a freed one")
    assert session.error is None
    assert trace.findings == []


def test_parameters_to_sample_belong_to_an_optimizer_that_is_alive() -> None:
    session = Session(Collector(), Settings(budget=1e-9))
    session.start()
    train(Net())
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    for _ in range(3):
        net(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
    sampled = session.schedule.steps.optimizers.sample_parameters()
    session.stop()
    assert [id(p) for p in sampled] == [id(p) for p in [*net.parameters()][:4]]


def test_an_optimizer_with_the_id_of_a_freed_one_is_a_new_optimizer() -> None:
    ids: list[int] = []

    def loop() -> None:
        net, other = Net(), Net()
        for model in (net, other):
            optimizers = [torch.optim.SGD(model.parameters(), 1e-3)]
            while ids and id(optimizers[-1]) != ids[0] and len(optimizers) < 1000:
                optimizers.append(torch.optim.SGD(model.parameters(), 1e-3))
            ids.append(id(optimizers[-1]))
            optimizer = optimizers[-1]
            del optimizers
            for _ in range(STEPS):
                optimizer.zero_grad()
                model(torch.randn(5, 4)).square().mean().backward()
                optimizer.step()
            del optimizer

    trace, session, _ = watched(1e-9, loop)
    if ids[0] != ids[1]:
        pytest.skip("this allocator gives no optimizer the id of a freed one")
    assert session.error is None and session.budget.steps_without_record > 60
    assert trace.findings == []
    assert all(p.trained for p in trace.facts.parameters)


def test_a_new_model_and_optimizer_during_fast_path_steps() -> None:
    trace, session, _ = watched(1e-9, lambda: [train(Net()) for _ in range(3)])
    assert session.schedule.steps.index == session.budget.steps == 3 * STEPS
    assert session.budget.steps_without_record > 60 and trace.findings == []
