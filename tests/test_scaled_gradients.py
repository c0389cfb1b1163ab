"""Steps with gradients that have the factor of a ``GradScaler``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector

STEPS = 20


class Loop:
    """The objects of a training loop."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self.optimizer: Any = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
        self.at = 0

    def backward(self, scaled: bool = True) -> None:
        x = torch.randn(16, 4)
        loss = nn.functional.cross_entropy(self.model(x), x[:, :3].argmax(dim=1))
        (self.scaler.scale(loss) if scaled else loss).backward()


Step = Callable[[Loop], None]


def watched(step: Step, make: Callable[[Loop], None] = lambda loop: None, settings: Settings | None = None) -> Any:
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    loop = Loop()
    make(loop)
    for loop.at in range(STEPS):
        loop.optimizer.zero_grad()
        step(loop)
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session)


def kinds(trace: Any) -> list[str]:
    assert not any(one.what == "internal error" for one in trace.coverage.unseen)
    return [found.kind for found in trace.findings if found.kind == "scaled-gradient-used"]


def plain(loop: Loop) -> None:
    loop.backward()
    loop.optimizer.step()


def adds_up(loop: Loop) -> None:
    loop.backward()
    loop.backward()
    loop.optimizer.step()
    loop.scaler.update(512.0)


def test_a_step_without_the_scaler() -> None:
    trace = watched(plain)
    (found,) = (one for one in trace.findings if one.kind == "scaled-gradient-used")
    assert [one.role for one in found.sites] == ["cause", "failed", "optimizer"]
    assert [one.site.function for one in found.sites] == ["plain", "backward", "__init__"]
    assert (found.evidence["scale"], found.evidence["steps"], found.step) == (1024.0, STEPS, 0)


def test_a_step_of_several_calls() -> None:
    assert kinds(watched(adds_up)) == ["scaled-gradient-used"]


def steps_by_scaler(loop: Loop) -> None:
    loop.backward()
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()


def unscales_first(loop: Loop) -> None:
    loop.backward()
    loop.scaler.unscale_(loop.optimizer)
    loop.optimizer.step()
    loop.scaler.update()


def divides(loop: Loop) -> None:
    loop.backward()
    for p in loop.model.parameters():
        p.grad /= loop.scaler.get_scale()  # type: ignore[misc]
    loop.optimizer.step()


def divides_data(loop: Loop) -> None:
    loop.backward()
    for p in loop.model.parameters():
        p.grad.data.mul_(1 / loop.scaler.get_scale())  # type: ignore[union-attr]
    loop.optimizer.step()


def replaces(loop: Loop) -> None:
    loop.backward()
    for p in loop.model.parameters():
        p.grad = p.grad / loop.scaler.get_scale()  # type: ignore[operator]
    loop.optimizer.step()


def adds_unscaled(loop: Loop) -> None:
    loop.backward()
    loop.optimizer.zero_grad(set_to_none=False)
    loop.backward(scaled=False)
    loop.optimizer.step()


def off(loop: Loop) -> None:
    loop.backward(scaled=False)
    loop.optimizer.step()


def by_turns(loop: Loop) -> None:
    (plain if loop.at % 2 else steps_by_scaler)(loop)


@pytest.mark.parametrize(
    "step", [steps_by_scaler, unscales_first, divides, divides_data, replaces, adds_unscaled, off, by_turns]
)
def test_right_steps_are_silent(step: Step) -> None:
    assert kinds(watched(step)) == []


def fuse(loop: Loop) -> None:
    loop.optimizer = torch.optim.Adam(loop.model.parameters(), lr=1e-3, fused=True)


def switch_off(loop: Loop) -> None:
    loop.scaler = torch.amp.GradScaler("cpu", enabled=False)


def add_hook(loop: Loop) -> None:
    def unscale(optimizer: Any, args: Any, kwargs: Any) -> None:
        for p in loop.model.parameters():
            p.grad.mul_(1 / loop.scaler.get_scale())  # type: ignore[union-attr]

    loop.optimizer.register_step_pre_hook(unscale)


class Unscaling(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.mul_(1 / 1024)
        super().step()


def own_class(loop: Loop) -> None:
    loop.optimizer = Unscaling(loop.model.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("make", "step"), [(fuse, steps_by_scaler), (switch_off, plain), (add_hook, plain), (own_class, plain)]
)
def test_optimizers_that_divide_are_silent(make: Callable[[Loop], None], step: Step) -> None:
    assert kinds(watched(step, make)) == []


def test_the_default_budget_is_enough() -> None:
    trace = watched(plain, settings=Settings(budget=0.05))
    assert kinds(trace) == ["scaled-gradient-used"]
