"""Rows of weights whose gradient is zero: real models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import backprobe
from backprobe.torch_internals.measure import nonzero_rows

KIND = "part-never-learns"


def found(model: nn.Module, loss: Callable[[torch.Tensor], torch.Tensor], steps: int = 30, size: int = 8) -> Any:
    """Train a model, and return the findings of its rows."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with backprobe.trace() as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model(torch.randn(32, size))).backward()
            optimizer.step()
    return [(one.severity, one.parameters, one.evidence["rows"]) for one in trace.findings if one.kind == KIND]


def mlp(dead: int = 0) -> nn.Sequential:
    """Return a model with `dead` units whose bias is far below zero."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 5))
    with torch.no_grad():
        model[0].bias[:dead] = -100.0
    return model


def test_outputs_that_are_cut_off() -> None:
    assert found(mlp(), lambda out: out[:, :-1].square().mean()) == [("warning", ("2.weight",), [4])]
    assert found(mlp(), lambda out: out[:, :3].square().mean()) == [("info", ("2.weight",), [3, 4])]
    assert found(mlp(), lambda out: out.square().mean()) == []


def test_units_that_are_dead() -> None:
    assert found(mlp(dead=10), lambda out: out.square().mean()) == []
    assert found(mlp(dead=14), lambda out: out.square().mean()) == [("info", ("0.weight",), list(range(14)))]
    assert found(mlp(dead=19), lambda out: out.square().mean()) == [("warning", ("0.weight",), list(range(19)))]


def test_channels_of_a_convolution() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2))
    with torch.no_grad():
        model[1].bias[:4] = -100.0
    assert found(model, lambda out: out.square().mean()) == [("info", ("1.weight",), [0, 1, 2, 3])]


def test_too_few_looks() -> None:
    assert found(mlp(), lambda out: out[:, :-1].square().mean(), steps=15) == []


def test_rows_that_learn_now_and_then() -> None:
    count = iter(range(100))
    assert found(mlp(), lambda out: out[:, : 5 - (next(count) % 8 > 0)].square().mean()) == []


@pytest.mark.parametrize(("jump", "severity"), [(5.0, "warning"), (0.0, "info")])
def test_units_that_die_later(jump: float, severity: str) -> None:
    """Test that dead units are no warning if the loss goes on to fall."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 5))
    count = iter(range(200))

    def loss(out: torch.Tensor) -> torch.Tensor:
        at = next(count)
        if at == 70:
            with torch.no_grad():
                model[0].bias[:16] = -100.0
        return out.square().mean() + jump * (at >= 70)

    assert found(model, loss, steps=130) == [(severity, ("0.weight",), list(range(16)))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_rows_with_a_value_agree_with_a_comparison_of_each_element(dtype: torch.dtype) -> None:
    tensor = torch.zeros(7, 3, 2, dtype=dtype)
    tensor[1, 2, 1], tensor[2], tensor[3, 0, 0], tensor[4, 1, 1] = -1e-7, -0.0, float("nan"), float("-inf")
    tensor[5, 0, 0], tensor[5, 0, 1] = 3.0, -3.0
    expected = [any(value != 0 for value in row.flatten().tolist()) for row in tensor]
    assert nonzero_rows(tensor).tolist() == expected == [False, True, False, True, True, True, False]
