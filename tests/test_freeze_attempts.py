"""Attributes that should freeze and have no meaning, on real models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import FreezeAttempt


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(x)))  # type: ignore[no-any-return]


class Flagged(Net):
    """A module with an attribute of that name, which its own code reads."""

    def __init__(self) -> None:
        super().__init__()
        self.requires_grad = False


def attempts(freeze: Callable[[Net], None], make: type[Net] = Net) -> list[FreezeAttempt]:
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    model = make()
    freeze(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return list(collector.trace(session).facts.of(FreezeAttempt))


def of_a_module(model: Net) -> None:
    model.body.requires_grad = False  # type: ignore[assignment]


def method_overwritten(model: Net) -> None:
    model.body.requires_grad_ = False  # type: ignore[assignment, method-assign]


def misspelt(model: Net) -> None:
    for p in model.body.parameters():
        p.require_grad = False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("freeze", "owners", "text"),
    [
        (of_a_module, ["body"], "model.body.requires_grad = False"),
        (method_overwritten, ["body"], "model.body.requires_grad_ = False"),
        (misspelt, ["body.weight", "body.bias"], "p.require_grad = False"),
    ],
)
def test_what_only_makes_an_attribute(freeze: Callable[[Net], None], owners: list[str], text: str) -> None:
    found = attempts(freeze)
    assert [one.owner for one in found] == owners
    assert {name for one in found for name in one.parameters} == {"body.weight", "body.bias"}
    assert all(len(one.lines) == 1 and one.lines[0].text.startswith(text) for one in found)


def frozen(model: Net) -> None:
    for part in (model.body,):
        part.requires_grad_(False)
        part.requires_grad = False  # type: ignore[assignment]


def named_otherwise(model: Net) -> None:
    model.body.trains = False  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("freeze", "make"),
    [(frozen, Net), (named_otherwise, Net), (lambda model: None, Flagged)],
    ids=["frozen", "other name", "own flag"],
)
def test_what_is_no_attempt(freeze: Callable[[Net], None], make: type[Net]) -> None:
    assert attempts(freeze, make) == []
