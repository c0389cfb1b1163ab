"""Layers whose units are copies of one another, on real models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import EqualUnits


def found_in(
    make: Callable[[], nn.Module], settings: Settings | None = None, steps: int = 80, rate: float = 1e-2
) -> tuple[EqualUnits, ...]:
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        x = torch.randn(32, 6)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1)).backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return tuple(collector.trace(session).facts.of(EqualUnits))


def constant() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.weight, 0.1)
            nn.init.zeros_(module.bias)
    return model


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings(budget=0.05)])
def test_a_constant_initial_value(settings: Settings) -> None:
    (found,) = found_in(constant, settings)
    assert (found.parameter, found.owner, found.rows, found.blocks) == ("0.weight", "Linear", 16, 1)
    assert (found.first, found.observed) == (0, True)
    assert found.value == pytest.approx(0.1)
    assert [site.text for site in found.given] == ["nn.init.constant_(module.weight, 0.1)"]


class Recurrent(nn.Module):
    """An LSTM; all of its elements are equal at first."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(2, 8, batch_first=True), nn.Linear(8, 3)
        for p in self.rnn.parameters():
            p.data.fill_(0.2)
        nn.init.ones_(self.head.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x.view(-1, 3, 2))[0][:, -1])


def test_units_of_each_gate_are_equal() -> None:
    found = found_in(Recurrent)
    assert [(one.parameter, one.rows, one.blocks) for one in found] == [
        ("rnn.weight_ih_l0", 8, 4),
        ("rnn.weight_hh_l0", 8, 4),
    ]
    assert [site.text for site in found[0].given] == ["p.data.fill_(0.2)"]


# What is no mistake


def zero_head() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    nn.init.zeros_(model[2].weight)  # type: ignore[arg-type]
    return model


class LowRank(nn.Module):
    """A frozen layer with a trained product of two matrices, one of them zero; a head with a scale of ones."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 16).requires_grad_(False), nn.Linear(16, 3)
        self.down, self.up = nn.Parameter(torch.randn(2, 6)), nn.Parameter(torch.zeros(16, 2))
        self.scale, self.gate = nn.Parameter(torch.ones(16)), nn.Parameter(torch.ones(3, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.body(x) + x @ self.down.T @ self.up.T
        return self.head(torch.tanh(hidden) * self.scale) * self.gate[:, 0]


def dropout_makes_a_difference() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 3))
    nn.init.constant_(model[0].weight, 0.1)  # type: ignore[arg-type]
    return model


class ZeroResidual(nn.Module):
    """Convolutions of which the last is zero at first."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, 8, 3, padding=1)
        self.one, self.two = nn.Conv1d(8, 8, 3, padding=1), nn.Conv1d(8, 8, 3, padding=1)
        self.head = nn.Linear(48, 3)
        nn.init.zeros_(self.two.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x[:, None])
        return self.head((x + self.two(torch.relu(self.one(x)))).flatten(1))


@pytest.mark.parametrize("make", [zero_head, LowRank, dropout_makes_a_difference, ZeroResidual])
def test_what_is_no_mistake(make: Callable[[], nn.Module]) -> None:
    assert found_in(make) == ()


def test_a_model_that_does_not_move() -> None:
    assert found_in(constant, rate=0.0) == ()
    assert found_in(constant, steps=3) == ()
