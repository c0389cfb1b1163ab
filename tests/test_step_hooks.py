"""Hooks of trackers around the steps of optimizers."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optim

from backprobe.observe import own_time
from backprobe.observe.events import Events
from backprobe.observe.schedule.step_hooks import StepHooks
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.observe.tracker import Tracker
from backprobe.observe.tracker_context import TrackerContext
from backprobe.records import ScheduleSeen


def test_observing_may_pause_inside_a_hook_of_an_optimizer() -> None:
    """torch iterates over the hooks then, as in 'backprobe bench', which compares steps with and without a session."""
    before = [dict(hooks) for hooks in (optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks)]
    collector = Collector()
    session = Session(collector, Settings(budget=None), whole=True)

    def switch(optimizer: Any, args: Any, kwargs: Any) -> None:
        session.pause()
        session.resume()

    switching = optim.register_optimizer_step_post_hook(switch)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.start()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    states = []
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        scheduler.step()
        states.append(model.state_dict())
    switching.remove()
    session.stop()
    assert session.error is None, repr(session.error)
    (found,) = collector.trace(session).facts.of(ScheduleSeen)
    assert (found.calls, found.steps) == (6, 6)
    assert [dict(hooks) for hooks in (optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks)] == before


def test_hooks_do_nothing_while_observing_pauses() -> None:
    collector = Collector()
    session = Session(collector, Settings(budget=None), whole=True)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.start()
    torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for paused in (False, True, True, False):
        if paused:
            session.pause()
        optimizer.step()
        session.resume()
    session.stop()
    (found,) = collector.trace(session).facts.of(ScheduleSeen)
    assert found.steps == 2


def test_the_time_that_hooks_take_is_backprobes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def work(optimizer: Any) -> None:
        nonlocal now
        now += 0.5

    monkeypatch.setattr(own_time, "_clock", lambda: now)
    events = Events()
    hooks = StepHooks(Tracker(cast("TrackerContext", None)), events, after=work)
    hooks.attach()
    optimizer = torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1)
    for _ in range(1000):
        optimizer.step()
    hooks.remove()
    assert events.own.sampled == pytest.approx(500.0, rel=0.01)
