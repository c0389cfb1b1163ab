"""Scripts that train without an optimizer, on real models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import ClimbingUpdates, GradientUse

Update = Callable[[nn.Module], None]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def clear(model: nn.Module) -> None:
    for p in model.parameters():
        p.grad = None


def loss_of(model: nn.Module) -> torch.Tensor:
    x = torch.randn(16, 4)
    return nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))


def moved(model: nn.Module, rate: float) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p += rate * p.grad


def train(update: Update, steps: int = 14, loss: Callable[[nn.Module], torch.Tensor] = loss_of) -> Callable[[], None]:
    def script() -> None:
        model = network()
        for _ in range(steps):
            loss(model).backward()  # type: ignore[no-untyped-call]
            update(model)

    return script


def found(script: Callable[[], Any], settings: Settings | None = None) -> list[GradientUse | ClimbingUpdates]:
    """Return what is found while `script` runs."""
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    try:
        script()
    finally:
        session.stop()
    assert session.error is None, repr(session.error)
    facts = collector.trace(session).facts
    return [*facts.of(GradientUse), *facts.of(ClimbingUpdates)]


def _foreach(model: nn.Module) -> None:
    with torch.no_grad():
        weights = list(model.parameters())
        torch._foreach_add_(weights, [p.grad for p in weights if p.grad is not None], alpha=-0.1)


def _data(model: nn.Module) -> None:
    for p in model.parameters():
        p.data = p.data - 0.1 * p.grad


SETTINGS = [Settings(budget=None), Settings(budget=0.05)]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("update", [lambda model: moved(model, -0.1), _foreach, _data])
def test_gradients_that_are_never_cleared(update: Update, settings: Settings) -> None:
    (seen,) = found(train(update), settings)
    assert isinstance(seen, GradientUse) and (seen.how, seen.optimizer) == ("by-hand", "")
    assert seen.backward is not None and seen.backward.text.startswith("loss(model).backward()")
    assert seen.stepped is not None


@pytest.mark.parametrize("settings", SETTINGS)
def test_updates_that_climb(settings: Settings) -> None:
    def update(model: nn.Module) -> None:
        moved(model, 0.1)
        clear(model)

    (seen,) = found(train(update), settings)
    assert isinstance(seen, ClimbingUpdates) and seen.rate == pytest.approx(0.1, rel=1e-3)
    assert seen.loss == "NllLossBackward0" and {*seen.parameters} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert seen.updated is not None and seen.updated.text == "p += rate * p.grad"


def test_two_numbers_that_climb() -> None:
    def script() -> None:
        slope, offset = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
        for _ in range(14):
            x = torch.randn(16)
            ((slope * x + offset - 2 * x - 1) ** 2).mean().backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                for p in (slope, offset):
                    p += 0.01 * p.grad
                    p.grad.zero_()

    (seen,) = found(script)
    assert isinstance(seen, ClimbingUpdates) and seen.loss == "MeanBackward0 of PowBackward0"


def _descends(model: nn.Module) -> None:
    moved(model, -0.1)
    clear(model)


def _zeroes_through_data(model: nn.Module) -> None:
    moved(model, -0.1)
    for p in model.parameters():
        assert p.grad is not None
        p.grad.data.zero_()


def _keeps_momentum(model: nn.Module) -> None:
    moved(model, -0.1)
    for p in model.parameters():
        assert p.grad is not None
        p.grad *= 0.9


def _adds_noise(model: nn.Module) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p += 0.01 * torch.randn_like(p)


def _climbs_a_part(model: nn.Module) -> None:
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p += (0.1 if i else -0.1) * p.grad
    clear(model)


def _trains_nothing(model: nn.Module) -> None:
    pass


HEALTHY = (_descends, _zeroes_through_data, _keeps_momentum, _adds_noise, _climbs_a_part, _trains_nothing)


@pytest.mark.parametrize("update", HEALTHY)
def test_updates_that_are_meant(update: Update) -> None:
    assert found(train(update)) == []


def test_a_score_may_climb() -> None:
    def score(model: nn.Module) -> torch.Tensor:
        return model(torch.randn(16, 4)).softmax(1)[:, 0].mean()

    def update(model: nn.Module) -> None:
        moved(model, 0.1)
        clear(model)

    assert found(train(update, loss=score)) == []
    assert found(train(update, loss=lambda model: -loss_of(model))) == []


def test_a_single_input_may_climb() -> None:
    def script() -> None:
        model, x = network().requires_grad_(False), torch.randn(16, 4, requires_grad=True)
        for _ in range(14):
            nn.functional.cross_entropy(model(x), torch.zeros(16, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                x += 0.5 * x.grad
                x.grad = None

    assert found(script) == []


def test_gradients_of_several_calls_are_added_up_before_an_update() -> None:
    def script() -> None:
        model = network()
        for step in range(60):
            loss_of(model).backward()  # type: ignore[no-untyped-call]
            if step % 4 == 3:
                _descends(model)

    assert found(script) == []


def test_a_generator_adds_to_gradients_of_a_critic_that_are_cleared_before_they_count() -> None:
    def script() -> None:
        generator, critic = nn.Linear(2, 4), network()
        for _ in range(12):
            clear(critic)
            nn.functional.cross_entropy(critic(torch.randn(8, 4)), torch.zeros(8, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]
            moved(critic, -0.1)
            clear(generator)
            fooled = nn.functional.cross_entropy(critic(generator(torch.randn(8, 2))), torch.ones(8, dtype=torch.long))
            fooled.backward()  # type: ignore[no-untyped-call]
            moved(generator, -0.1)

    assert found(script) == []


def _rebound(model: nn.Module) -> None:
    for p in model.parameters():
        p = p - 0.1 * p.grad
    clear(model)


def test_an_update_that_is_only_assigned_to_the_variable_of_a_loop() -> None:
    (seen,) = found(train(_rebound))
    assert isinstance(seen, GradientUse) and seen.how == "rebound"
    assert seen.stepped is not None and seen.stepped.function == "_rebound"


def test_an_optimizer_takes_over() -> None:
    def script() -> None:
        model = network()
        for _ in range(10):
            loss_of(model).backward()  # type: ignore[no-untyped-call]
            moved(model, 0.01)
            clear(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(10):
            optimizer.zero_grad()
            loss_of(model).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    assert found(script) == []
