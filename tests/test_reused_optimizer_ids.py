"""Optimizers that get the id of a freed optimizer: nothing that is known of the freed one is taken for theirs."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from reusing import REUSED, reuse, with_id
from torch import nn
from watching import watched

from backprobe.observe.forward.writes import WriteLog
from backprobe.observe.overhead import ToolAlternation
from backprobe.observe.session import Settings
from backprobe.observe.statistics.accumulated import AccumulatedGradients
from backprobe.observe.statistics.activations import Activations
from backprobe.observe.statistics.numbers import Numbers
from backprobe.observe.statistics.parameters import Parameters
from backprobe.records import GradientUse, OptimizerSeen, StoppedLearning
from backprobe.source.frames import Frames

if TYPE_CHECKING:
    from backprobe.observe.forward.modules import ModuleWatch
    from backprobe.observe.session import Session

__all__ = ["reuse"]
pytestmark = pytest.mark.usefixtures("reuse")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.extra = nn.Linear(3, 1), nn.Linear(3, 1)
        self.whole = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(x) + self.extra(x) if self.whole else self.fc(x)
        return out


class First(torch.optim.SGD):
    """An optimizer with the reused id, also while it is being made."""

    reused_id = REUSED


class Second(First):
    pass


def step(model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    model(torch.ones(2, 3)).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def test_both_optimizers_are_reported() -> None:
    session, collector = watched()
    session.start()
    model = Net()
    for make in (First, Second):
        optimizer = make(model.parameters(), 1e-3)
        for _ in range(3):
            step(model, optimizer)
        del optimizer
    session.stop()
    seen = {(one.name, one.tensors) for one in collector.trace(session).facts.of(OptimizerSeen)}
    assert seen == {("First", 4), ("Second", 4)}


def test_no_step_waits_for_an_optimizer_that_is_gone() -> None:
    session, _ = watched(Settings(budget=1e-9))
    session.start()
    model, other = Net(), Net()
    pair: list[Any] = [First(model.parameters(), 1e-3), torch.optim.SGD(other.parameters(), 1e-3)]
    for _ in range(5):
        (model(torch.ones(2, 3)) * other(torch.ones(2, 3))).sum().backward()
        for optimizer in pair:
            optimizer.step()
    del optimizer
    pair.clear()
    alone = Second(model.parameters(), 1e-3)
    for _ in range(3):
        step(model, alone)
    step(model)
    before = session.schedule.steps.index
    alone.step()
    after = session.schedule.steps.index
    session.stop()
    assert session.error is None and after == before + 1


def test_an_optimizer_that_steps_after_the_holder_of_a_missing_parameter_is_gone() -> None:
    session, collector = watched()
    session.start()
    for whole, partial in ((10, 3), (20, 0)):
        model = Net()
        optimizer = Second(model.parameters(), 1e-3)
        for i in range(whole + partial):
            model.whole = i < whole
            step(model, optimizer)
        del model, optimizer
    session.stop()
    assert not collector.trace(session).facts.of(StoppedLearning)


def test_a_finding_about_a_freed_optimizer_stays_its_own() -> None:
    session, collector = watched()
    session.start()
    model = Net()
    first = First(model.parameters(), 1e-3)
    for _ in range(8):
        model(torch.ones(2, 3)).square().sum().backward()
        first.step()
    model.zero_grad()
    del first
    second = Second(model.parameters(), 1e-3)
    for _ in range(8):
        step(model, second)
    session.stop()
    [found] = collector.trace(session).facts.of(GradientUse)
    assert (found.optimizer, found.how) == ("First", "again")
    assert found.made is not None and found.made.text.startswith("first = ")


def test_an_optimizer_whose_parameters_have_the_ids_of_freed_ones_used_no_gradients() -> None:
    session, collector = watched()
    session.start()
    for kind, clears in ((torch.optim.SGD, False), (torch.optim.Adam, True)):
        model = nn.Linear(3, 1, bias=False)
        with_id(model.weight, REUSED + 2)
        optimizer = kind(model.parameters(), lr=1e-3)
        for _ in range(7):
            step(model)
            if clears:
                optimizer.zero_grad()
            optimizer.step()
            optimizer.zero_grad()
        del model
    session.stop()
    assert [(one.optimizer, one.how) for one in collector.trace(session).facts.of(GradientUse)] == [("Adam", "cleared")]


def test_the_step_of_an_unobserved_optimizer_has_no_lines_of_a_freed_one() -> None:
    log = WriteLog(Frames(), cast("ModuleWatch", SimpleNamespace(stack=[])))
    weight = nn.Parameter(torch.ones(3))
    first = First([weight], 1e-3)
    log.optimizer_begins(first)
    log.optimizer_ended(first)
    storage = weight.untyped_storage().data_ptr()
    assert len(log._step_to(storage, first, 5, None)[0].lines) == 1
    del first
    second = Second([weight], 1e-3)
    assert log._step_to(storage, second, 5, None)[0].lines == ()


def test_the_number_of_writes_to_a_parameter_is_not_that_of_a_freed_one() -> None:
    log = WriteLog(Frames(), cast("ModuleWatch", SimpleNamespace(stack=[])))
    optimizer = torch.optim.SGD([with_id(nn.Parameter(torch.ones(3)))], 1e-3)
    group = optimizer.param_groups[0]["params"]
    log.optimizer_begins(optimizer)
    group[0].detach().add_(1)
    log.optimizer_ended(optimizer)
    assert log._step_to(group[0].untyped_storage().data_ptr(), optimizer, 5, None)[0].bumps == 1
    group[0] = None
    group[0] = with_id(nn.Parameter(torch.ones(3)))
    assert log._step_to(group[0].untyped_storage().data_ptr(), optimizer, 5, None)[0].bumps is None


def test_gradients_accumulated_for_a_freed_optimizer_are_not_those_of_a_later_one() -> None:
    due: list[Any] = [(First([nn.Parameter(torch.ones(3))], 1e-3), 0, True)]
    places: Any = SimpleNamespace(due=lambda: due)
    gradients = AccumulatedGradients(places.due, id, lambda roots: (None, True), print, time.time, print)
    gradients._before_call([torch.ones((), requires_grad=True)], (None, False), None)
    first = due[0][0]
    assert gradients.pop_state(first) is not None
    gradients._before_call([torch.ones((), requires_grad=True)], (None, False), None)
    due.clear()
    del first
    assert gradients.pop_state(Second([nn.Parameter(torch.ones(3))], 1e-3)) is None


def test_a_parameter_has_no_inputs_of_a_freed_weight() -> None:
    numbers: Any = Numbers()
    layer = nn.Linear(3, 1)
    with_id(layer.weight)
    Activations._note_fan_in(cast("Activations", SimpleNamespace(numbers=numbers)), layer)
    del layer
    weight = with_id(nn.Parameter(torch.ones(3)))
    weight.sum().backward()
    Parameters(torch.optim.SGD([weight], 1e-3), "SGD", numbers, lambda p: "weight").measure_before_step()
    assert numbers.fan_in == {} and numbers.sizes == {"weight": 3}


def test_an_optimizer_is_measured_although_a_freed_one_is_due_later() -> None:
    session, collector = watched(Settings(layer_stats=1000))
    session.start()
    for kind in (First, Second):
        model = Net()
        optimizer = kind(model.parameters(), 1e-3)
        for _ in range(3):
            step(model, optimizer)
        del model, optimizer
    session.stop()
    steps = [one.step for one in collector._measured]
    assert len(steps) == 2


def test_times_of_a_freed_optimizer_are_its_own() -> None:
    alternation = ToolAlternation(["plain"])
    alternation.steps = 100
    alternation._session = cast("Session", SimpleNamespace())
    for kind in (First, Second):
        alternation._stepped(kind([nn.Parameter(torch.ones(3))], 1e-3), (), {})
    assert [len(one) for one in alternation.times["plain"].values()] == [1, 1]
