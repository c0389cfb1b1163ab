"""A small training loop that fails in one step, under a session with a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from backprobe import Trace
from backprobe.observe.schedule.budget import Budget
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector


def spend(budget: Budget, steps: int, alone: float, recorded: float, passing: float = 0.0) -> list[bool]:
    """Return which of `steps` steps were recorded."""
    which = []
    for _ in range(steps):
        wanted = budget.wants_record()
        mine = recorded if wanted else passing
        budget.charge_step(alone + mine, mine, wanted, False)
        which.append(wanted)
    return which


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor, spoil: str = "") -> torch.Tensor:
        h = torch.tanh(self.first(x))
        if spoil == "inplace":
            with torch.no_grad():
                h.add_(1)
        if spoil == "nonfinite-forward":
            h = torch.sqrt(h - 100)
        if spoil == "nonfinite-backward":
            h = h + (h * 0).square().sum(-1, keepdim=True).sqrt()
        if spoil == "backward-error":
            h = Refuses.apply(h)
        if spoil == "wrong-backward-shape":
            h = Misfits.apply(h)
        if spoil == "none-grad":
            h = h.detach()
        return self.last(torch.tanh(self.second(h)))


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        raise ValueError("not today")


class Misfits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.sum(0)


AT, STEPS = 60, 64


SPOILS = ("inplace", "nonfinite-forward", "nonfinite-backward", "backward-error", "wrong-backward-shape")


def train(model: Net, spoil: str = "") -> list[torch.Tensor]:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for i in range(STEPS):
        x = torch.randn(5, 4)
        loss = model(x, spoil if i == AT else "").square().mean()
        optimizer.zero_grad()
        loss.backward()
        if spoil == "second-backward" and i == AT:
            loss.backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def watched(budget: float | None, loop: Callable[[], Any]) -> tuple[Trace, Session, BaseException | None]:
    collector = Collector()
    session = Session(collector, Settings(budget=budget))
    raised: BaseException | None = None
    torch.manual_seed(0)
    session.start()
    try:
        loop()
    except (RuntimeError, ValueError) as error:
        raised = error
    finally:
        session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session, {}), session, raised
