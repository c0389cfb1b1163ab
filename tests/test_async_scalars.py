"""Losses and gradients on an accelerator in unrecorded steps: read asynchronously, in later steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.schedule import budget as budgets
from backprobe.observe.session import Session, Settings
from backprobe.torch_internals import async_scalars
from backprobe.torch_internals.async_scalars import Later


@pytest.fixture(autouse=True)
def nothing_to_spend(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is recorded but the first three, and those that trouble asks for; none passes."""
    monkeypatch.setattr(budgets, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(budgets, "MAX_STEPS_BETWEEN_RECORDED", 10**9)
    monkeypatch.setattr(budgets, "UNRECORDED_STEP_FRACTION", math.inf)


class Kept:
    """A sink that keeps steps, and what of them was recorded, in the order in which they come."""

    def __init__(self) -> None:
        self.losses: list[tuple[int, float | None]] = []
        self.order: list[tuple[str, int]] = []

    def backward(self, recorded: Any) -> None:
        self.order.append(("call", recorded.step))

    def step(self, step: Any, session: Session) -> None:
        self.order.append(("step", step.index))
        self.losses.append((step.index, step.loss))


@contextmanager
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Tensors say that they are on an accelerator. What is read of them, meanwhile."""
    read: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        own = getattr(torch.Tensor, name)

        def call(self: torch.Tensor, *given: Any) -> Any:
            read.append(name)
            return own(self, *given)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "is_cpu", property(lambda self: False), raising=False)
        for name in ("item", "tolist", "__float__", "__bool__", "__int__"):
            patch.setattr(torch.Tensor, name, noted(name))
        yield read


def trainer(spoil_at: int = -1, device: str = "cpu") -> Callable[[int], None]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    x = torch.randn(5, 4).to(device)

    def step(i: int) -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        (loss / 0 if i == spoil_at else loss).backward()
        optimizer.step()

    return step


def run(budget: float | None, steps: int, patched: Any = None, spoil_at: int = -1) -> tuple[Kept, Session, list[str]]:
    kept, read, step = Kept(), [], trainer(spoil_at)
    session = Session(kept, Settings(budget=budget))
    session.start()
    for i in range(6):
        step(i)
    if patched is None:
        for i in range(6, steps):
            step(i)
    else:
        with away(patched) as read:
            for i in range(6, steps):
                step(i)
            read = list(read)
    session.stop()
    assert session.error is None, repr(session.error)
    return kept, session, read


def test_a_step_does_not_wait_for_values_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 300
    every, _, _ = run(None, steps)
    kept, session, read = run(1e-9, steps, monkeypatch)
    assert session.budget.recorded_steps < 10
    assert kept.losses == [(i, pytest.approx(loss, rel=1e-6)) for i, loss in every.losses]
    assert len(kept.losses) == steps
    assert len(read) <= 2 * steps // async_scalars.MAX_PENDING_NUMBERS + 1 and set(read) <= {"tolist"}


@pytest.mark.parametrize("spoil_at", [-1, 40])
def test_losses_of_fast_path_steps_on_an_accelerator_arrive_later(
    monkeypatch: pytest.MonkeyPatch, spoil_at: int
) -> None:
    steps = 300
    every, _, _ = run(None, steps, spoil_at=spoil_at)
    for name, value in (
        ("UNRECORDED_STEP_FRACTION", 0.0),
        ("UNRECORDED_STEP_FRACTION_IF_DEFERRED", 0.0),
        ("MAX_DEFERRED_SECONDS", 0.02),
    ):
        monkeypatch.setattr(budgets, name, value)
    monkeypatch.setattr(budgets.Budget, "affords_deferred_records", lambda self: True)
    kept, session, read = run(1e-9, steps, monkeypatch, spoil_at=spoil_at)
    assert session.budget.deferred_records > 10 and session.budget.steps_without_record == 0
    assert kept.losses == [(i, pytest.approx(loss, rel=1e-6, nan_ok=True)) for i, loss in every.losses]
    if spoil_at < 0:
        assert len(read) <= 2 * steps // async_scalars.MAX_PENDING_NUMBERS + 1 and set(read) <= {"tolist"}


def test_a_nonfinite_loss_that_arrives_later_makes_the_next_steps_inspected(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fine, _ = run(1e-9, 300, monkeypatch)
    kept, session, _ = run(1e-9, 300, monkeypatch, spoil_at=40)
    assert not math.isfinite(dict(kept.losses)[40] or 0.0)
    assert session.budget.recorded_steps > fine.budget.recorded_steps
    assert [i for i, _ in kept.losses] == list(range(300))
    for at, (what, step) in enumerate(kept.order):  # a step comes after what was recorded in it, and before the next's
        assert what == "step" or ("step", step - 1) in kept.order[:at] or step == 0


def test_numbers_come_in_order_and_at_once_where_that_is_asked_for() -> None:
    told: list[float] = []
    numbers = Later()
    for i in range(3 * async_scalars.MAX_PENDING_NUMBERS + 5):
        numbers.add(torch.tensor(float(i)), told.append)
    assert len(told) == 2 * async_scalars.MAX_PENDING_NUMBERS
    numbers.flush()
    assert told == [float(i) for i in range(3 * async_scalars.MAX_PENDING_NUMBERS + 5)]
    numbers.flush()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_no_step_waits_for_the_gpu() -> None:
    kept, step = Kept(), trainer(device="cuda")
    session = Session(kept, Settings(budget=1e-9))
    session.start()
    for i in range(10):
        step(i)
    before = session.budget.recorded_steps
    torch.cuda.set_sync_debug_mode("error")
    try:
        for i in range(10, 300):
            step(i)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert session.budget.recorded_steps == before
    session.stop()
    assert session.error is None, repr(session.error)
    assert [i for i, _ in kept.losses] == list(range(300)) and all(loss is not None for _, loss in kept.losses)
