"""Models that stay in evaluation mode while they are trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import LeftInEvaluation


def switch(model: nn.Module, mode: bool) -> None:
    if mode:
        model.train()
        return
    model.eval()


def trained(modes: list[bool], *layers: nn.Module, settings: Settings | None = None) -> Any:
    """Train a model with `layers` for one step in each of `modes`; true is train mode."""
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    model = nn.Sequential(nn.Linear(4, 8), *layers, nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for mode in modes:
        switch(model, mode)
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session).facts.of(LeftInEvaluation)


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings("minimal")])
def test_a_model_that_stays_in_evaluation_mode(settings: Settings) -> None:
    (found,) = trained([True] * 10 + [False] * 12, nn.BatchNorm1d(8), nn.Dropout(0.1), settings=settings)
    assert (found.model, found.since, found.train, found.evaluation) == ("Sequential", 10, 10, 12)
    assert found.affected == ("BatchNorm1d", "Dropout")
    assert [site.text for site in found.calls] == ["model.eval()"]


def test_a_phase_that_begins_in_evaluation_mode_on_purpose() -> None:
    def run(new_optimizer: bool) -> Any:
        collector = Collector()
        session = Session(collector, Settings(budget=None))
        session.start()
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for step in range(24):
            if step == 12:
                switch(model, False)
                optimizer = torch.optim.SGD(model.parameters(), lr=1e-3) if new_optimizer else optimizer
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        session.stop()
        return collector.trace(session).facts.of(LeftInEvaluation)

    assert run(new_optimizer=True) == () and len(run(new_optimizer=False)) == 1


@pytest.mark.parametrize(
    ("modes", "layer"),
    [
        ([False] * 20, nn.Dropout(0.1)),  # from the start: meant
        ([True] * 10 + [False] * 10 + [True], nn.Dropout(0.1)),  # switched back
        ([True] * 10 + [False] * 5, nn.Dropout(0.1)),
        ([True] * 10 + [False] * 12, nn.Dropout(0.0)),
        ([True] * 10 + [False] * 12, nn.LayerNorm(8)),  # the same in both modes
    ],
)
def test_what_is_not_reported(modes: list[bool], layer: nn.Module) -> None:
    assert trained(modes, layer) == ()
