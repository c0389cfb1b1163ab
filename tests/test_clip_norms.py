"""Total norms from ``clip_grad_norm_``: noted in every step, and counted as norms before clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad

import backprobe
from backprobe.observe.schedule import budget as budgets
from backprobe.observe.schedule.budget import Budget
from backprobe.observe.session import Session, Settings
from backprobe.records import BriefSteps, Step
from backprobe.torch_internals import gradient_clipping
from backprobe.traces.gradients import BACKWARD, OPTIMIZER, OneKind


class Keeps:
    """A sink that keeps all steps."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.brief = 0

    def backward(self, recorded: Any) -> None:
        """Ignore calls."""

    def step(self, step: Step, session: Session) -> None:
        self.steps.append(step)

    def brief_steps(self, steps: BriefSteps, session: Session) -> None:
        self.brief += len(steps)
        self.steps += steps


def train(steps: int, clip: Callable[[nn.Module], Any]) -> list[Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer, found = torch.optim.SGD(model.parameters(), 0.1), []
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().mean().backward()
        found.append(clip(model))
        optimizer.step()
    return found


def once(model: nn.Module) -> float:
    return nn.utils.clip_grad_norm_(model.parameters(), 0.1).item()


def twice(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model[0].parameters(), 0.1)
    nn.utils.clip_grad_norm_(model[2].parameters(), 0.1)


def watched(settings: Settings, steps: int, clip: Callable[[nn.Module], Any]) -> tuple[Keeps, list[Any]]:
    sink = Keeps()
    session = Session(sink, settings)
    session.start()
    found = train(steps, clip)
    session.stop()
    assert session.error is None
    return sink, found


@pytest.mark.parametrize("level", ["minimal", "nodes", "full"])
def test_each_step_has_the_norm_that_clipping_found(level: str) -> None:
    sink, found = watched(Settings(level), 8, once)
    assert [step.clip_norm for step in sink.steps] == found == train(8, once)
    assert clip_grad._clip_grads_with_norm_ is gradient_clipping._original


def test_very_short_steps_have_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("UNRECORDED_STEP_FRACTION_IF_DEFERRED", 0.0),
        ("MAX_DEFERRED_SECONDS", 0.02),
        ("FREE_SECONDS", 0.0),
        ("LONG_STEP_ALLOWANCE_S", 0.0),
    ):
        monkeypatch.setattr(budgets, name, value)
    monkeypatch.setattr(Budget, "affords_deferred_records", lambda self: True)
    sink, found = watched(Settings("minimal"), 120, once)
    assert [step.clip_norm for step in sink.steps] == found
    assert sink.brief > 0


def test_two_calls_in_a_step_give_no_total() -> None:
    sink, _ = watched(Settings("nodes"), 4, twice)
    assert [step.clip_norm for step in sink.steps] == [None] * 4


def test_a_norm_that_is_no_number_is_kept() -> None:
    def infinite(model: nn.Module) -> float:
        model[0].bias.grad.fill_(math.inf)
        return once(model)

    sink, found = watched(Settings("nodes"), 1, infinite)
    assert [step.clip_norm for step in sink.steps] == found == [math.inf]


@pytest.mark.usefixtures("fresh_dynamo")
def test_a_compiled_function_that_clips_is_compiled_as_without_us() -> None:
    model = nn.Linear(3, 1)
    model(torch.ones(2, 3)).sum().backward()
    graphs: list[list[str]] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph

    def clips(parameters: list[Any]) -> Any:
        return nn.utils.clip_grad_norm_(parameters, 1.0)

    for listens in (False, True):
        torch._dynamo.reset()
        with backprobe.trace() if listens else torch.enable_grad():
            torch.compile(clips, backend=backend, fullgraph=True)([*model.parameters()])
    assert len(graphs) == 2
    assert graphs[0] == graphs[1]


def test_the_norm_counts_where_the_backward_was_not_recorded() -> None:
    norms = OneKind()
    used = [("weight", 0.25)]
    assert norms.of((), (), 3.0).total == 3.0
    assert norms.of((), used, 4.0).total == 4.0
    assert norms.kind == BACKWARD
    assert norms.of((), used).total is None
    after = OneKind(OPTIMIZER)
    assert after.of((), used, 4.0).total == 0.25


def test_a_norm_of_other_gradients_does_not_count() -> None:
    def some(model: nn.Module) -> float:
        return nn.utils.clip_grad_norm_(model[0].parameters(), 0.1).item()

    for clip, counts in ((once, True), (some, False)):
        with backprobe.trace() as trace:
            train(3, clip)
        norms = OneKind()
        for step in trace.steps:
            found = norms.of(step.backwards, (), step.record.clip_norm)
            assert found.norms and found.clip_norm is None
        assert (norms.of((), (), 5.0).total == 5.0) == counts
