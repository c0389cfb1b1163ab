"""Optimizers that are made anew again and again over the same parameters, on real models."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import NewOptimizers


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 1) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


def found(script: Callable[[], Any], settings: Settings | None = None) -> list[NewOptimizers]:
    """Return what is found while `script` runs."""
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    try:
        script()
    finally:
        session.stop()
    assert session.error is None, repr(session.error)
    return [*collector.trace(session).facts.of(NewOptimizers)]


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings("minimal"), Settings(budget=0.05)])
@pytest.mark.parametrize("steps", [1, 4, 15, 20])
def test_an_optimizer_that_is_made_anew(settings: Settings, steps: int) -> None:
    def script() -> None:
        model = network()
        for _ in range(12):
            learn(model, torch.optim.Adam(model.parameters(), lr=1e-3), steps)

    (seen,) = found(script, settings)
    assert (seen.optimizer, seen.fewest, seen.most, seen.parameters) == ("Adam", steps, steps, 4)
    assert seen.made == 12 or (seen.is_least and seen.made >= 8)
    assert seen.made_at is not None and "torch.optim.Adam(" in seen.made_at.text
    assert seen.stepped is not None and seen.stepped.text == "optimizer.step()"


def test_it_begins_after_a_training_with_one_optimizer() -> None:
    def script() -> None:
        model = network()
        learn(model, torch.optim.Adam(model.parameters()), 40)
        for _ in range(10):
            learn(model, torch.optim.Adam(model.parameters()), 2)
        learn(model, torch.optim.Adam(model.parameters()), 40)

    (seen,) = found(script)
    assert (seen.made, seen.fewest, seen.most, seen.is_least) == (10, 2, 2, False)


@pytest.mark.parametrize("name", ["RMSprop", "AdamW", "NAdam"])
def test_every_optimizer_with_a_state_counts(name: str) -> None:
    model = network()
    (seen,) = found(lambda: [learn(model, getattr(torch.optim, name)(model.parameters())) for _ in range(9)])
    assert (seen.optimizer, seen.made) == (name, 9)


def _handed_on(model: nn.Module) -> None:
    state = None
    for _ in range(12):
        optimizer = torch.optim.Adam(model.parameters())
        if state is not None:
            optimizer.load_state_dict(state)
        learn(model, optimizer, 2)
        state = optimizer.state_dict()


def _from_the_start(model: nn.Module) -> None:
    start = copy.deepcopy(model.state_dict())
    for _ in range(12):
        model.load_state_dict(start)
        learn(model, torch.optim.Adam(model.parameters()), 3)


def _through_data(model: nn.Module) -> None:
    start = [p.detach().clone() for p in model.parameters()]
    for _ in range(12):
        for p, value in zip(model.parameters(), start, strict=True):
            p.data.copy_(value)
        learn(model, torch.optim.Adam(model.parameters()), 3)


def _of_each_parameter(model: nn.Module) -> None:
    optimizers = [torch.optim.Adam([p]) for p in model.parameters() for _ in range(3)]
    for _ in range(12):
        model(torch.randn(8, 4)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()


def _solved(model: nn.Module) -> None:
    for _ in range(12):
        solver = torch.optim.LBFGS(model.parameters(), max_iter=4)

        def closure(solver: torch.optim.Optimizer = solver) -> torch.Tensor:
            solver.zero_grad()
            loss: torch.Tensor = model(torch.ones(8, 4)).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        solver.step(closure)


def _plain(model: nn.Module) -> None:
    for _ in range(12):
        learn(model, torch.optim.SGD(model.parameters(), lr=0.1))


def _few(model: nn.Module) -> None:
    for _ in range(5):
        learn(model, torch.optim.Adam(model.parameters()), 4)


def _long(model: nn.Module) -> None:
    for _ in range(9):
        learn(model, torch.optim.Adam(model.parameters()), 21)


def _other_models(model: nn.Module) -> None:
    for _ in range(12):
        one = copy.deepcopy(model)
        learn(one, torch.optim.Adam(one.parameters()), 2)


HEALTHY = (_handed_on, _from_the_start, _through_data, _of_each_parameter, _solved, _plain, _few, _long, _other_models)


@pytest.mark.parametrize("script", HEALTHY)
def test_new_optimizers_that_are_meant(script: Callable[[nn.Module], None]) -> None:
    assert found(lambda: script(network())) == []


def test_no_optimizer_and_no_tensor_is_kept_alive() -> None:
    refs: list[weakref.ref[Any]] = []

    def script() -> None:
        model = network()
        for _ in range(12):
            optimizer = torch.optim.Adam(model.parameters())
            learn(model, optimizer)
            refs.append(weakref.ref(optimizer))
            refs.extend(weakref.ref(p) for p in model.parameters())
        del model, optimizer
        gc.collect()
        assert not any(ref() is not None for ref in refs)

    found(script)


def test_weights_are_the_same_with_and_without() -> None:
    def trained() -> Iterable[torch.Tensor]:
        model = network()
        for _ in range(10):
            learn(model, torch.optim.Adam(model.parameters()), 2)
        return [p.detach().clone() for p in model.parameters()]

    plain, seen = trained(), list[torch.Tensor]()
    found(lambda: seen.extend(trained()))
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))
