"""The reported number of retained graphs: exact, or a lower bound if not all were counted."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
from handmade import at, only, traced
from torch import nn

from backprobe.observe.schedule import budget as budgets
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import Retained

STEPS = 130


def retained_by(history: Any, steps: int, budget: float | None = None) -> Any:
    """The finding about a script that puts each loss into `history`."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    collector = Collector()
    session = Session(collector, Settings(budget=budget))
    session.start()
    for _ in range(steps):
        loss = model(torch.ones(2, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss)
    session.stop()
    assert session.error is None, session.error
    return next(one for one in collector.trace(session).findings if one.kind == "graph-retained")


def test_the_count_is_exact_if_every_step_is_recorded() -> None:
    found = retained_by([], 20)
    assert "alive: 19 when we looked, and one more with each step" in found.title
    assert found.evidence["graphs_alive"] == found.evidence["steps_since"] == 19


@pytest.mark.parametrize("rest", [0.5, float("inf")], ids=["passing", "unrecorded"])
def test_a_lower_bound_is_reported_as_such(rest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("FREE_SECONDS", 0.0),
        ("MAX_STEPS_BETWEEN_RECORDED", 10**9),
        ("UNRECORDED_STEP_FRACTION", rest),
    ):
        monkeypatch.setattr(budgets, name, value)
    found = retained_by([], STEPS, 1e-9)
    counted, since = found.evidence["graphs_alive"], found.evidence["steps_since"]
    assert counted < since <= STEPS - 1 and since > STEPS / 2
    assert f"alive: at least {counted} of the {since} since step {found.evidence['oldest_step']}" in found.title


def test_a_bounded_history_does_not_grow() -> None:
    found = retained_by(deque(maxlen=6), 40)
    assert found.evidence["graphs_alive"] <= 6
    assert "one more with each step" not in found.title or found.evidence["graphs_alive"] < 6


def test_the_wording() -> None:
    def title(**more: Any) -> str:
        return only(traced(seen=[Retained("losses", "a list", at(70), "", 7, **more)])).title

    assert title(first=2, steps=7).endswith("7 when we looked, and one more with each step")
    assert title(first=2, steps=7, grew=False).endswith("alive: 7 when we looked")
    assert title(first=2, steps=28).endswith("alive: at least 7 of the 28 since step 2, and more with each step")
    assert title(first=2, steps=28, grew=False).endswith("alive: at least 7 of the 28 since step 2")
