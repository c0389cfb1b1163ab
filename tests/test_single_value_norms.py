"""Normalisations over single values, whose result is a constant."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector


class Gated(nn.Module):
    """A skip connection that learns, and a branch that pools its input to one position and normalises it."""

    def __init__(self, norm: Any, positions: int = 1) -> None:
        super().__init__()
        self.skip, self.mix, self.norm = nn.Conv1d(3, 8, 3, padding=1), nn.Conv1d(3, 8, 1), norm
        self.pool = nn.AdaptiveAvgPool1d(positions)
        nn.init.constant_(norm.bias, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch = torch.relu(self.norm(self.mix(self.pool(x))))
        return (torch.relu(self.skip(x)).mean(2) + branch.mean(2) - 1).square().mean()


def trained(model: nn.Module, steps: int = 24) -> Any:
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 3, 12)).backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session)


@pytest.mark.parametrize(
    "norm", [nn.GroupNorm(8, 8), nn.GroupNorm(8, 8, eps=1e-3), nn.LayerNorm(1)], ids=["group", "eps", "layer"]
)
def test_single_values(norm: nn.Module) -> None:
    (found,) = trained(Gated(norm)).findings
    assert (found.kind, found.module) == ("zero-grad", "norm")
    assert {"mix.weight", "mix.bias"} <= set(found.parameters) and "skip.weight" not in found.parameters
    assert found.sites[0].role == "cut" and "self.norm(" in found.sites[0].site.text


def gamma_of_zero() -> nn.Module:
    norm = nn.GroupNorm(2, 8)
    nn.init.zeros_(norm.weight)
    return Gated(norm)


def constant_input() -> nn.Module:
    model = Gated(nn.GroupNorm(2, 8))
    nn.init.zeros_(model.mix.weight)
    nn.init.zeros_(model.mix.bias)
    return model


def large_input() -> nn.Module:
    model = Gated(nn.GroupNorm(2, 8))
    with torch.no_grad():
        model.mix.weight.mul_(1e5)
    return model


@pytest.mark.parametrize(
    "model",
    [
        Gated(nn.GroupNorm(1, 8)),
        Gated(nn.GroupNorm(4, 8)),
        Gated(nn.GroupNorm(8, 8), positions=4),
        Gated(nn.LayerNorm(4), positions=4),
        gamma_of_zero(),
        constant_input(),
        large_input(),
    ],
    ids=["one group", "pairs", "positions", "layer", "gamma of zero", "constant input", "large input"],
)
def test_norms_over_several_values(model: nn.Module) -> None:
    assert not [found for found in trained(model).findings if "single values" in found.title]
