"""The steps in which gradients and weights are accounted for, and how far the fast path may go between them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from backprobe.observe.schedule.budget import OBSERVED_STEP_FRACTION, Budget, StepRoom
from backprobe.observe.schedule.observed_steps import (
    FIRST_OBSERVED_STEPS,
    FIRST_OBSERVED_STEPS_IF_LATE,
    MAX_ROWS_APART,
    MIN_ROWS_APART,
    OBSERVATION_INTERVAL,
    OBSERVED_STEPS_IN_A_ROW,
    ObservedSteps,
    rows_apart,
)

LONG_STEPS, SHORT_STEPS = StepRoom(True), StepRoom(False)


def made() -> tuple[ObservedSteps, Any]:
    steps: Any = SimpleNamespace(index=0)
    return ObservedSteps(steps), steps


def kept(observed: ObservedSteps, room: StepRoom, until: int) -> list[int]:
    """Return the steps after the first ones that do not take the fast path."""
    step, found = FIRST_OBSERVED_STEPS, []
    while step < until:
        passes = observed.steps_until_observed(step, room)
        found += [step] if passes == 0 else []
        step += max(passes, 1)
    return found


@pytest.mark.parametrize(
    ("room", "rows"), [(LONG_STEPS, 2), (SHORT_STEPS, 16), (StepRoom(True, 0.01), 8), (StepRoom(True, 1e-6), 16)]
)
def test_rows_of_later_steps_are_kept_whole(room: StepRoom, rows: int) -> None:
    observed, steps = made()
    until = 4 * rows * OBSERVATION_INTERVAL
    starts = range(rows * OBSERVATION_INTERVAL, until, rows * OBSERVATION_INTERVAL)
    assert kept(observed, room, until) == [start + at for start in starts for at in range(OBSERVED_STEPS_IN_A_ROW)]
    for start in starts:
        steps.index = start
        assert observed.is_observed and not observed.is_first
        assert not observed.observes(start - 1) and not observed.observes(start + OBSERVED_STEPS_IN_A_ROW)


def test_rows_are_as_far_apart_as_their_cost_asks() -> None:
    budget, overhead = Budget(0.05), 0.001
    for _ in range(200):
        budget.charge_step(0.1 + overhead, overhead, recorded=False, inspected=False)
    assert budget.room.observed_share == float("inf")
    for _ in range(200):
        budget.charge_step(0.1 + 0.02, 0.02, recorded=False, inspected=False, observed=True)
    assert budget.room.observed_share == pytest.approx(OBSERVED_STEP_FRACTION * 0.05 * 0.1 / 0.02, rel=1e-3)
    apart = rows_apart(StepRoom(True, budget.room.observed_share))
    assert OBSERVED_STEPS_IN_A_ROW / (apart * OBSERVATION_INTERVAL) <= budget.room.observed_share
    assert MIN_ROWS_APART <= apart <= MAX_ROWS_APART
    assert rows_apart(StepRoom(False, budget.room.observed_share)) == MAX_ROWS_APART


def test_a_row_that_has_begun_is_finished() -> None:
    observed, _ = made()
    begun = MIN_ROWS_APART * OBSERVATION_INTERVAL
    assert observed.steps_until_observed(begun, LONG_STEPS) == 0
    assert observed.steps_until_observed(begun + 1, StepRoom(True, 1e-6)) == 0


def test_the_first_steps_are_kept_if_they_are_long() -> None:
    observed, _ = made()
    first = [observed.steps_until_observed(step, LONG_STEPS) for step in range(FIRST_OBSERVED_STEPS)]
    assert first == [0] * FIRST_OBSERVED_STEPS
    assert observed.steps_until_observed(0, SHORT_STEPS) == FIRST_OBSERVED_STEPS


@pytest.mark.parametrize("room", [LONG_STEPS, SHORT_STEPS])
def test_the_first_steps_of_a_late_optimizer_are_kept(room: StepRoom) -> None:
    observed, steps = made()
    steps.index = 200
    late = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    observed.optimizer_found(late)
    steps.index = 204
    observed.optimizer_found(late)  # several trackers say so
    steps.index = 200
    kept_steps = [step for step in range(190, 230) if observed.steps_until_observed(step, room) == 0]
    assert kept_steps == list(range(200, 200 + FIRST_OBSERVED_STEPS_IF_LATE))
    assert observed.is_first
