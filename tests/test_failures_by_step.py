"""A failure in a single step is named at its line, at every level and whichever step it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import backprobe

Step = Callable[[nn.Module, torch.Tensor], None]


class Wrong(torch.autograd.Function):
    """Raises in its backward, or gives a gradient of a wrong shape."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, raises: bool) -> torch.Tensor:
        ctx.raises = raises
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        if ctx.raises:
            raise ValueError("no gradient")
        return grad[:1], None


def inf_in_forward(model: nn.Module, x: torch.Tensor) -> None:
    out = model(x)
    out = (out - out).log()  # CAUSE
    out.square().mean().backward()


def masked_row(model: nn.Module, x: torch.Tensor) -> None:
    scores = model(x)
    scores = scores.masked_fill(torch.ones(4, dtype=torch.bool), -torch.inf)
    weights = F.softmax(scores, -1)  # CAUSE
    weights.square().mean().backward()


def nan_in_backward(model: nn.Module, x: torch.Tensor) -> None:
    out = model(x)
    distance = (out - out.detach()).square().sum()
    loss = distance.sqrt() + out.mean()  # CAUSE
    loss.backward()


def written_in_place(model: nn.Module, x: torch.Tensor) -> None:
    out = model(x).sigmoid()
    out += 1  # CAUSE
    out.sum().backward()


def second_backward(model: nn.Module, x: torch.Tensor) -> None:
    out = model(x).tanh()
    out.sum().backward()
    loss = out.square().sum()  # CAUSE
    loss.backward()


def raises_in_backward(model: nn.Module, x: torch.Tensor) -> None:
    out = Wrong.apply(model(x), True)  # CAUSE
    out.square().mean().backward()


def wrong_shape(model: nn.Module, x: torch.Tensor) -> None:
    out = Wrong.apply(model(x), False)  # CAUSE
    out.square().mean().backward()


FAILURES: dict[Step, str] = {
    inf_in_forward: "nonfinite-forward",
    masked_row: "nonfinite-forward",
    nan_in_backward: "nonfinite-backward",
    written_in_place: "inplace",
    second_backward: "second-backward",
    raises_in_backward: "backward-error",
    wrong_shape: "wrong-backward-shape",
}


def train(failure: Step, fails_in: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(fails_in + 2):
        optimizer.zero_grad()
        x = torch.randn(3, 4)
        if step == fails_in:
            try:
                failure(model, x)
            except (RuntimeError, ValueError):
                continue
        else:
            model(x).square().mean().backward()
        optimizer.step()


def anew(function: Any) -> Any:
    """Return a copy of a function no line of which has run, as in a new process."""
    return FunctionType(function.__code__.replace(), globals(), function.__name__)


@pytest.mark.parametrize("fails_in", [0, 2, 99])
@pytest.mark.parametrize(("level", "budget"), [("minimal", None), ("nodes", None), ("nodes", 0.05), ("full", None)])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.__name__)
def test_the_line_is_named(failure: Step, level: str, fails_in: int, budget: float | None) -> None:
    lines, first = inspect.getsourcelines(failure)
    cause = first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# CAUSE"))
    with backprobe.trace(level=level, budget=budget) as trace:
        anew(train)(anew(failure), fails_in)
    assert [unseen for unseen in trace.coverage.unseen if unseen.what == "internal error"] == []
    assert {found.kind for found in trace.findings} == {FAILURES[failure]}
    found = trace.findings[0]
    assert found.step == fails_in
    assert found.sites[0].site.line == cause, str(found)
    if "inferred" in found.evidence and FAILURES[failure] in ("second-backward", "backward-error"):
        assert found.confidence != "certain"
        assert any(place.startswith(f"{found.sites[0].site.file}:{cause}") for place in found.evidence["candidates"])
