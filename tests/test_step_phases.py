"""The parts of a step: what is timed, and what is left out."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import pytest
import torch
from torch import nn
from watching import watched

from backprobe import thresholds
from backprobe.observe.schedule.settings import Settings
from backprobe.observe.trackers import step_phases
from backprobe.records import StepPhases
from backprobe.report.phases import phases
from backprobe.traces import Trace
from backprobe.traces.phases import PHASES, typical_step

#: Seconds that a part of a step sleeps, at least: on a busy machine it sleeps longer.
NAP_S = 0.01
#: The share of its sleep that a part has at least: backprobe's own time, which is subtracted, is an estimate.
LEAST_SHARE = 0.5
STEPS = 10


def recorded(naps: dict[str, int], steps: int = STEPS, penalty: bool = False) -> Trace:
    """Record steps whose parts sleep: `naps` times ``NAP_S`` each, by the name of the part."""

    def nap(part: str) -> None:
        time.sleep(naps.get(part, 0) * NAP_S)

    class Slow(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nap("forward")
            return super().forward(x)

    class SlowSGD(torch.optim.SGD):
        def step(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
            nap("optimizer")
            super().step(*args, **kwargs)

    def slow_gradient(grad: torch.Tensor) -> torch.Tensor:
        nap("backward")
        return grad

    model = Slow(3, 1)
    optimizer = SlowSGD(model.parameters(), lr=0.1)
    session, collector = watched(Settings(budget=None))
    session.start()
    for _ in range(steps):
        nap("before")
        if "evaluation" in naps:
            with torch.no_grad():
                model(torch.ones(2, 3))
                nap("evaluation")
        x = torch.ones(2, 3, requires_grad=penalty)
        out = model(x)
        out.register_hook(slow_gradient)
        loss = out.square().mean()
        if penalty:
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            nap("after derivative")
            loss = loss + slope.square().sum()
        loss.backward()
        nap("rest")
        optimizer.step()
        optimizer.zero_grad()
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session)


def test_each_part_has_the_time_that_it_takes() -> None:
    naps = {"before": 1, "forward": 3, "backward": 2, "optimizer": 4, "rest": 5}
    trace = recorded(naps)
    assert trace.step_phases and all(one.step >= 3 for one in trace.step_phases)  # the first ones are inspected
    for one in trace.step_phases:
        for name, count in naps.items():
            assert getattr(one, name) >= LEAST_SHARE * count * NAP_S, (name, one)
        assert one.seconds == pytest.approx(sum(getattr(one, name) for name in PHASES))


def test_the_parts_are_no_longer_than_the_step() -> None:
    trace = recorded({"forward": 1})
    seconds = {step.index: step.seconds for step in trace.steps}
    ratios = [one.seconds / seconds[one.step] for one in trace.step_phases]
    assert statistics.median(ratios) <= 1.1, ratios  # each part is an estimate, and none is below zero


def test_after_a_derivative_the_forward_goes_on() -> None:
    trace = recorded({"after derivative": 2, "rest": 0}, penalty=True)
    assert trace.step_phases
    assert all(one.forward >= LEAST_SHARE * 2 * NAP_S for one in trace.step_phases)


def test_an_evaluation_belongs_to_what_comes_before_the_forward() -> None:
    trace = recorded({"evaluation": 3})
    assert trace.step_phases
    assert all(one.before >= LEAST_SHARE * 3 * NAP_S for one in trace.step_phases)


def test_kept_steps_are_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_phases, "MAX_STEPS", 6)
    numbers = [one.step for one in recorded({"forward": 2}, steps=40).step_phases]
    assert 3 <= len(numbers) <= 6
    gaps = {b - a for a, b in itertools.pairwise(numbers)}
    assert max(gaps) <= 2 * min(gaps) and numbers[-1] > 25


def test_a_typical_step_is_the_median_of_each_part() -> None:
    timed = [StepPhases(i, *(float(i * n) for n in range(1, 6))) for i in (1, 2, 9)]
    typical = typical_step(timed)
    assert typical is not None and typical.steps == 3
    assert [getattr(typical, name) for name in PHASES] == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert typical.seconds == 30.0
    assert typical_step([]) is None


def test_the_page_has_the_typical_step() -> None:
    trace = recorded({"forward": 1})
    typical, row = trace.typical_step, phases(trace)
    assert typical is not None and row is not None
    assert row == {"steps": typical.steps, "seconds": [getattr(typical, name) for name in PHASES]}
    assert phases(Trace()) is None


def test_a_step_of_which_backprobe_takes_too_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "STEP_PHASES_MAX_OWN_SHARE", 0.0)
    assert recorded({"forward": 1}).step_phases == ()
