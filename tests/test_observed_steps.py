"""The steps in which gradients and weights are accounted for, and how far the fast path may go between them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from backprobe.observe.ledger.observed_steps import (
    FIRST_OBSERVED_STEPS,
    FIRST_OBSERVED_STEPS_IF_LATE,
    OBSERVATION_INTERVAL,
    OBSERVED_STEPS_IN_A_ROW,
    ObservedSteps,
)


def made() -> tuple[ObservedSteps, Any, Any]:
    steps, limits = SimpleNamespace(index=0), []
    observed = ObservedSteps(SimpleNamespace(steps=steps, fast_path_limits=limits))
    (limit,) = limits
    return observed, steps, limit


@pytest.mark.parametrize(("long_steps", "rows"), [(True, 2), (False, 16)])
def test_rows_of_later_steps_are_kept_whole(long_steps: bool, rows: int) -> None:
    _, _, limit = made()
    step, kept = FIRST_OBSERVED_STEPS, []
    while step < 4 * rows * OBSERVATION_INTERVAL:
        passes = limit(step, long_steps)
        kept += [step] if passes == 0 else []
        step += max(passes, 1)
    starts = range(rows * OBSERVATION_INTERVAL, step, rows * OBSERVATION_INTERVAL)
    assert kept == [start + at for start in starts[:3] for at in range(OBSERVED_STEPS_IN_A_ROW)]


def test_the_first_steps_are_kept_if_they_are_long() -> None:
    _, _, limit = made()
    assert [limit(step, True) for step in range(FIRST_OBSERVED_STEPS)] == [0] * FIRST_OBSERVED_STEPS
    assert limit(0, False) == FIRST_OBSERVED_STEPS


@pytest.mark.parametrize("long_steps", [True, False])
def test_the_first_steps_of_a_late_optimizer_are_kept(long_steps: bool) -> None:
    observed, steps, limit = made()
    steps.index = 200
    observed.optimizer_found()
    late = [step for step in range(190, 230) if limit(step, long_steps) == 0]
    assert late == list(range(200, 200 + FIRST_OBSERVED_STEPS_IF_LATE))
    assert observed.is_first
