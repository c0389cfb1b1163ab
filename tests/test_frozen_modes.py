"""Frozen parts that are in training mode, on real models."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import FrozenInTraining


class Pair(nn.Module):
    """A student and its teacher, which is called without gradients."""

    def __init__(self, *layers: nn.Module, freeze: bool = True) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(4, 8), *layers, nn.Linear(8, 1))
        self.student = nn.Linear(4, 1)
        if freeze:
            self.teacher.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            target = self.teacher(x)
        return (self.student(x) - target).square().mean()  # type: ignore[no-any-return]


class Headed(nn.Module):
    """A head on a frozen body, in the graph."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 8), *layers), nn.Linear(8, 1)
        self.body.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)).square().mean()  # type: ignore[no-any-return]


Before = Callable[[Any, int], None]


def trained(model: Any, before: Before, steps: int = 60, settings: Settings | None = None, data: Any = None) -> Any:
    """Train a model; `before` is called with it and the step before each step."""
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(steps):
        before(model, step)
        optimizer.zero_grad()
        model(torch.randn(8, 4) if data is None else data()).backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session).facts.of(FrozenInTraining)


def switched_back(model: Any, step: int) -> None:
    if step == 0:
        model.teacher.eval()
    if step == 20:
        model.eval()
        model.train()


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings("minimal"), Settings(budget=0.05)])
def test_a_teacher_that_a_parent_switches_back(settings: Settings) -> None:
    (found,) = trained(Pair(nn.BatchNorm1d(8), nn.Dropout(0.1)), switched_back, settings=settings)
    assert (found.part, found.since, found.evaluation, found.norms, found.dropouts) == ("teacher", 20, 20, 1, 1)
    assert found.last - found.since >= 30 and found.norm_class == "BatchNorm1d"
    assert {site.text for site in found.switched} == {"model.train()"}
    assert found.evaluated[0].text == "model.teacher.eval()"


def test_a_period_that_begins_late_and_is_not_recorded() -> None:
    def late(model: Any, step: int) -> None:
        if step == 0:
            model.teacher.eval()
        if step == 220:
            model.eval()
            model.train()

    (found,) = trained(Pair(nn.BatchNorm1d(8)), late, steps=500, settings=Settings(last=10))
    assert 220 <= found.since <= 260 and found.evaluation >= 5


def test_a_part_that_is_frozen_in_the_middle_of_a_run() -> None:
    class Learns(Headed):
        def __init__(self) -> None:
            super().__init__(nn.BatchNorm1d(8))
            self.requires_grad_(True)

    def frozen(model: Any, step: int) -> None:
        if step == 100:
            model.body.requires_grad_(False)
            model.body.eval()
        if step == 150:
            model.eval()
            model.train()

    (found,) = trained(Learns(), frozen, steps=300)
    assert found.part == "body" and 150 <= found.since <= 192 and found.learned and found.evaluation >= 5


def test_a_teacher_whose_requires_grad_stays_on() -> None:
    def run() -> Any:
        model = Pair(nn.BatchNorm1d(8), freeze=False)
        model.student.requires_grad_(True)
        torch.manual_seed(0)
        collector = Collector()
        session = Session(collector, Settings(budget=None))
        session.start()
        optimizer = torch.optim.SGD(model.student.parameters(), lr=1e-2)
        for step in range(50):
            switched_back(model, step)
            optimizer.zero_grad()
            model(torch.randn(8, 4)).backward()
            optimizer.step()
        session.stop()
        return collector.trace(session).facts.of(FrozenInTraining)

    assert [one.part for one in run()] == ["teacher"]


def test_dropout_of_a_teacher_without_running_statistics() -> None:
    (found,) = trained(Pair(nn.LayerNorm(8), nn.Dropout(0.1)), switched_back)
    assert (found.norms, found.dropouts) == (0, 1)


def test_statistics_that_moved_to_other_data() -> None:
    body = Headed(nn.BatchNorm1d(8))
    with torch.no_grad():
        for _ in range(100):
            body.body(torch.randn(32, 4))
    (found,) = trained(body, lambda model, step: None, data=lambda: torch.randn(32, 4) + 2)
    assert not found.evaluation and not found.evaluated and found.moved > 0.5
    (same,) = trained(body, lambda model, step: None, data=lambda: torch.randn(32, 4) + 2)
    assert same.moved < 0.3


def moving_average(write: Callable[[Any, Any], None]) -> Before:
    def before(model: Any, step: int) -> None:
        switched_back(model, step)
        for p in model.teacher.parameters():
            write(p, torch.ones_like(p))

    return before


def in_place(p: Any, other: Any) -> None:
    with torch.no_grad():
        p.mul_(0.99).add_(other, alpha=0.01)


def through_data(p: Any, other: Any) -> None:
    p.data.mul_(0.99).add_(other, alpha=0.01)


def every_ten_steps(model: Any, step: int) -> None:
    switched_back(model, step)
    if step % 10 == 0:
        model.teacher.load_state_dict(model.teacher.state_dict())


def thawed(model: Any, step: int) -> None:
    switched_back(model, step)
    if step == 30:
        model.teacher.requires_grad_(True)
        for p in model.teacher.parameters():
            p.grad = torch.zeros_like(p)


def statistics_renewed(model: Any, step: int) -> None:
    """Estimate the statistics anew, without steps of the optimizer."""
    if step % 20 == 0:
        model.train()
        with torch.no_grad():
            for _ in range(5):
                model.teacher(torch.randn(8, 4))
    model.train()
    Pair.eval(model.teacher)  # type: ignore[arg-type]


def briefly(model: Any, step: int) -> None:
    if step in (0, 30):
        model.teacher.eval()
    if step == 20:
        model.train()


@pytest.mark.parametrize(
    ("layer", "before"),
    [
        (nn.BatchNorm1d(8), moving_average(in_place)),
        (nn.BatchNorm1d(8), moving_average(through_data)),
        (nn.BatchNorm1d(8), every_ten_steps),
        (nn.BatchNorm1d(8), thawed),
        (nn.BatchNorm1d(8), statistics_renewed),
        (nn.BatchNorm1d(8), briefly),
        (nn.BatchNorm1d(8, track_running_stats=False), switched_back),
        (nn.BatchNorm1d(8, momentum=0.0), switched_back),
        (nn.LayerNorm(8), switched_back),
        (nn.Dropout(0.0), switched_back),
    ],
)
def test_what_is_not_reported(layer: nn.Module, before: Before) -> None:
    assert trained(Pair(layer), before) == ()


def test_dropout_of_a_frozen_body_in_the_graph() -> None:
    def before(model: Any, step: int) -> None:
        if step == 0:
            model.body.eval()
        if step == 20:
            model.train()

    assert trained(Headed(nn.Dropout(0.1)), before) == ()


def test_adapters_in_a_frozen_body() -> None:
    class Adapted(Headed):
        def __init__(self) -> None:
            super().__init__(nn.Dropout(0.1))
            self.body.append(nn.Linear(8, 8))

    def before(model: Any, step: int) -> None:
        if step == 0:
            model.body.eval()
        if step == 20:
            model.train()

    assert trained(Adapted(), before) == ()


def test_nothing_is_kept_alive() -> None:
    model = Pair(nn.BatchNorm1d(8), nn.Dropout(0.1))
    refs = [weakref.ref(one) for one in model.modules()]
    assert len(trained(model, switched_back)) == 1
    del model
    gc.collect()
    assert [one() for one in refs] == [None] * len(refs)
