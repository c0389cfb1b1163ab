"""Parameters that are thawed in a step that is not recorded, and trained from then on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector

#: Only the first steps are recorded, as if the budget were spent then.
FEW_RECORDED = Settings(budget=None, last=20)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front, self.back, self.idle = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.front(x).tanh()
        self.idle(hidden)
        return self.back(hidden)


def trained(thawed_at: int, asked_at: int | None, steps: int = 60) -> Any:
    """The trace of a run whose model is gone at the end.

    :param asked_at: the step in which the parameters are listed, as when findings are written before the end.
    """
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, FEW_RECORDED)
    session.start()

    def train() -> None:
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for step in range(steps):
            model.front.requires_grad_(step >= thawed_at)
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            if step == asked_at:
                collector.trace(session)

    train()
    session.stop()
    return collector.trace(session)


def names(trace: Any) -> list[str]:
    return [name for one in trace.findings if one.kind == "none-grad" for name in one.parameters]


@pytest.mark.parametrize("asked_at", [None, 45])
def test_no_recorded_step_says_that_a_thawed_part_gets_no_gradient(asked_at: int | None) -> None:
    trace = trained(40, asked_at)
    recorded = [step.index for step in trace.steps if any(call.nodes for call in step.backwards)]
    assert recorded and max(recorded) < 40  # or this checks nothing
    assert names(trace) == ["idle.weight", "idle.bias"]


def test_a_part_that_is_thawed_before_the_recorded_steps_counts() -> None:
    assert names(trained(0, None)) == ["idle.weight", "idle.bias"]
