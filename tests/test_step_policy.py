"""The policy that decides how closely each step is observed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from backprobe.observe.schedule.settings import Settings
from backprobe.observe.schedule.step_policy import MAX_NOVELTY_INSPECTIONS, NOVELTY_GROWTH, Detail, StepPolicy


@dataclass
class Root:
    bad: bool


@dataclass
class Call:
    """The parts of a record of a backward call that the policy reads."""

    step: int
    has_trouble: bool = False
    kind: str = "Tensor.backward"
    loss_is_bad: bool = False

    @property
    def roots(self) -> list[Root]:
        return [Root(self.loss_is_bad)]


def details(policy: StepPolicy, steps: range) -> list[Detail]:
    return [policy.plan(step, lambda: True, False).detail for step in steps]


@pytest.mark.parametrize("level", ["nodes", "full", "minimal"])
@pytest.mark.parametrize("every", [1, 3])
def test_levels_of_the_first_steps_without_a_budget(level: str, every: int) -> None:
    found = details(StepPolicy(Settings(level, every=every)), range(12))
    for step, detail in enumerate(found):
        recorded = level != "minimal" and step % every == 0
        inspected = recorded and (level == "full" or step < 3)
        assert detail is (Detail.INSPECT if inspected else Detail.RECORD if recorded else Detail.SENTINEL), step


def test_the_window_of_steps_that_a_run_asks_for() -> None:
    found = details(StepPolicy(Settings(first=5, last=7)), range(12))
    assert [step for step, detail in enumerate(found) if detail is not Detail.SENTINEL] == [5, 6]  # not step 7 any more


def test_everything_is_attached_in_the_first_steps_of_the_minimal_level_to_learn_the_modules() -> None:
    policy = StepPolicy(Settings("minimal"))
    plans = [policy.plan(step, lambda: True, False) for step in range(5)]
    assert [plan.attached for plan in plans] == [True, True, True, False, False]
    assert all(plan.calls_to_engine and not plan.recorded for plan in plans)


def test_a_step_that_cannot_be_attached_is_checked_by_sentinels() -> None:
    policy = StepPolicy(Settings())
    assert policy.plan(0, lambda: False, False).detail is Detail.SENTINEL
    assert policy.plan(1, lambda: True, False).detail is Detail.INSPECT


def test_the_next_step_is_planned_as_decided_ahead() -> None:
    policy = StepPolicy(Settings(every=2))
    assert policy.decide_ahead(4) and policy.is_decided_ahead
    assert policy.plan(5, lambda: True, False).recorded  # not wanted by itself
    assert not policy.is_decided_ahead
    assert not policy.plan(5, lambda: True, False).recorded


def test_steps_after_a_failure_explain_it() -> None:
    policy = StepPolicy(Settings())
    for step in range(10):
        assert not policy.plan(step, lambda: True, False).diagnoses
    policy.inspections.inspect_after(9)
    policy.call_recorded(Call(9, has_trouble=True), scaled=False)  # type: ignore[arg-type]
    plans = [policy.plan(step, lambda: True, False) for step in range(10, 16)]
    assert [plan.inspected for plan in plans] == [True] * 3 + [False] * 3
    assert [plan.diagnoses for plan in plans] == [True] * 3 + [False] * 3


def test_only_the_first_bad_losses_in_a_row_are_explained() -> None:
    policy = StepPolicy(Settings(budget=0.05))
    for step in range(3):
        assert not policy.budget.only_counts_bad_losses
        policy.call_recorded(Call(step, loss_is_bad=True), scaled=False)  # type: ignore[arg-type]
    assert policy.budget.only_counts_bad_losses
    policy.call_recorded(Call(3, kind="autograd.grad"), scaled=False)  # type: ignore[arg-type]
    assert policy.budget.only_counts_bad_losses
    policy.call_recorded(Call(4), scaled=False)  # type: ignore[arg-type]
    assert not policy.budget.only_counts_bad_losses


def test_novelty_is_inspected_at_once_then_only_in_much_longer_runs() -> None:
    policy = StepPolicy(Settings())
    assert all(policy.found_novelty(10 * i) for i in range(1, MAX_NOVELTY_INSPECTIONS + 1))
    last = 10 * MAX_NOVELTY_INSPECTIONS
    assert not policy.found_novelty(last + 1)
    assert policy.found_novelty(int(NOVELTY_GROWTH * last))


def test_novelty_that_the_budget_does_not_cover_is_inspected_later() -> None:
    policy = StepPolicy(Settings(budget=0.05))
    policy.budget.spent = 100.0
    assert not policy.found_novelty(40)
    assert not policy.found_postponed_novelty(41)
    policy.budget.spent = 0.0
    assert policy.found_postponed_novelty(42)
    assert not policy.found_postponed_novelty(43)
    assert policy.plan(43, lambda: True, False).inspected


def test_a_late_failure_counts_as_novelty() -> None:
    policy = StepPolicy(Settings())
    assert all(policy.found_late_failure(50) for _ in range(MAX_NOVELTY_INSPECTIONS))
    assert not policy.found_late_failure(50)


@pytest.mark.parametrize(
    ("settings", "omits"),
    [
        (Settings(), False),
        (Settings("minimal"), True),
        (Settings(every=2), True),
        (Settings(first=1), True),
        (Settings(last=9), True),
        (Settings(budget=0.05), True),
    ],
)
def test_whether_steps_may_be_left_out(settings: Settings, omits: bool) -> None:
    assert StepPolicy(settings).omits_steps is omits
