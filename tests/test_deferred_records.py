"""Deferred records of fast-path steps (Note [Brief steps]): their losses, calls and seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.schedule import budget as budgets
from backprobe.observe.schedule.budget import Budget
from backprobe.observe.session import Session, Settings
from backprobe.records import Step

Loop = Callable[[], Any]
STEPS = 60


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some steps pass after each that does not, and records of all can be paid."""
    monkeypatch.setattr(budgets, "UNRECORDED_STEP_FRACTION_IF_DEFERRED", 0.0)
    monkeypatch.setattr(budgets, "MAX_DEFERRED_SECONDS", 0.02)
    monkeypatch.setattr(budgets, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(budgets, "LONG_STEP_ALLOWANCE_S", 0.0)
    monkeypatch.setattr(Budget, "affords_deferred_records", lambda self: True)


class Keeps:
    """A sink that keeps all steps."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.calls: list[int] = []

    def backward(self, recorded: Any) -> None:
        self.calls.append(recorded.index)

    def step(self, step: Step, session: Session) -> None:
        self.steps.append(step)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def batches() -> Any:
    generator = torch.Generator().manual_seed(1)
    while True:
        yield torch.randn(5, 4, generator=generator)


def simple() -> None:
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(next(data)).square().mean().backward()
        optimizer.step()


def accumulates() -> None:
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(STEPS):
        for _ in range(3):
            (net(next(data)).square().mean() / 3).backward()
        optimizer.step()
        optimizer.zero_grad()


def accumulates_more_and_more() -> None:
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        for _ in range(1 + step // 20):
            net(next(data)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def attacks() -> None:
    """The gradients of the first call are cleared before the second."""
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(STEPS):
        x = next(data).requires_grad_()
        net(x).square().mean().backward()
        optimizer.zero_grad()
        net(x.detach() + 0.1 * x.grad.sign()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def penalty() -> None:
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(STEPS):
        x = next(data).requires_grad_()
        (grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        (net(x).square().mean() + grad.square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()


def asks_for_gradients() -> None:
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(STEPS):
        x = next(data).requires_grad_()
        torch.autograd.grad(net(x).sum(), x)
        net(x.detach()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def several_roots() -> None:
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(STEPS):
        out = net(next(data))
        torch.autograd.backward([out.square().mean(), out.abs().mean()])
        optimizer.step()
        optimizer.zero_grad()


def takes_turns() -> None:
    first, second, data = model(), model(), batches()
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (first, second)]
    for step in range(STEPS):
        net, optimizer = (first, second)[step % 2], optimizers[step % 2]
        optimizer.zero_grad()
        net(next(data)).square().mean().backward()
        optimizer.step()


def critic_more_often() -> None:
    """Both in one pass of the loop, over graphs that share a part."""
    maker, critic, data = model(), nn.Linear(1, 1), batches()
    of_maker, of_critic = (torch.optim.Adam(net.parameters(), 1e-2) for net in (maker, critic))
    for _ in range(STEPS // 4):
        for _ in range(3):
            of_critic.zero_grad()
            (critic(maker(next(data)).detach()).square().mean() - critic(torch.ones(5, 1)).mean()).backward()
            of_critic.step()
        of_maker.zero_grad()
        critic(maker(next(data))).mean().backward()
        of_maker.step()


def takes_over() -> None:
    """A model and its optimizer are gone when the next are made: one may get the number of another."""
    data = batches()
    for _ in range(5):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(STEPS // 5):
            optimizer.zero_grad()
            net(next(data)).square().mean().backward()
            optimizer.step()


def joined_later() -> None:
    """In turn first, then both after one call, then in turn again."""
    first, second, data = model(), model(), batches()
    one, other = (torch.optim.SGD(net.parameters(), 0.1) for net in (first, second))
    for step in range(STEPS):
        both = STEPS // 3 <= step < STEPS // 2
        x = next(data)
        out = first(x) + second(x) if both else (first, second)[step % 2](x)
        out.square().mean().backward()
        for optimizer in (one, other) if both else ((one, other)[step % 2],):
            optimizer.step()
            optimizer.zero_grad()


def both_losses_first() -> None:
    """The second call is made from a graph that was there before the first optimizer stepped."""
    first, second, data = model(), model(), batches()
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (first, second)]
    for _ in range(STEPS // 2):
        x = next(data)
        for loss, optimizer in zip([net(x).square().mean() for net in (first, second)], optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def two_at_once() -> None:
    net, data = model(), batches()
    optimizers = [torch.optim.SGD(part.parameters(), 0.1) for part in net.children() if isinstance(part, nn.Linear)]
    for _ in range(STEPS):
        net(next(data)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def by_hand() -> None:
    net, data = model(), batches()
    for _ in range(STEPS):
        net(next(data)).square().mean().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad  # type: ignore[operator]
                p.grad = None


def closure() -> None:
    net, data = model(), batches()
    optimizer = torch.optim.LBFGS(net.parameters(), 0.1, max_iter=2)

    def again() -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        x = next(data)
        optimizer.step(again)


def scaled() -> None:
    net, data = model(), batches()
    optimizer, scaler = torch.optim.SGD(net.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=64.0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(net(next(data)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()


def with_no_number() -> None:
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(STEPS):
        out = net(next(data))
        out.backward(torch.ones_like(out))
        optimizer.step()
        optimizer.zero_grad()


def catches() -> None:
    """Every seventh call raises, and the script goes on."""
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        out = net(next(data))
        squares = out.exp()
        loss = squares.mean()
        if step % 7 == 5:
            with torch.no_grad():
                squares.zero_()
        try:
            loss.backward()
        except RuntimeError:
            continue
        optimizer.step()


def one_closure() -> None:
    """As frameworks call optimizers."""
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def closure() -> Any:
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        return loss

    for _ in range(STEPS):
        x = next(data)
        optimizer.step(closure)


def turns_bad() -> None:
    net, data = model(), batches()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        out = net(next(data))
        (out.square().mean() * (float("nan") if step in (30, 31) else 1.0)).backward()
        if step not in (30, 31):
            optimizer.step()


LOOPS: list[Loop] = [
    simple,
    accumulates,
    accumulates_more_and_more,
    attacks,
    penalty,
    asks_for_gradients,
    several_roots,
    takes_turns,
    critic_more_often,
    takes_over,
    joined_later,
    both_losses_first,
    two_at_once,
    by_hand,
    closure,
    one_closure,
    scaled,
    with_no_number,
    catches,
    turns_bad,
]
#: Loops whose fast-path steps get no record: the roots of their calls do not determine what the step adds up.
UNTOLD = {attacks, closure, with_no_number}


def steps_of(loop: Loop, settings: Settings) -> tuple[list[Step], Session, list[int]]:
    sink = Keeps()
    session = Session(sink, settings)
    session.start()
    try:
        loop()
    finally:
        session.stop()
    assert session.error is None, repr(session.error)
    return sink.steps, session, sink.calls


def numbers(steps: list[Step]) -> list[tuple[Any, ...]]:
    return [(s.index, None if s.loss is None else repr(s.loss), s.backwards, s.calls, s.scale) for s in steps]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
@pytest.mark.parametrize("settings", [Settings("minimal"), Settings("minimal", budget=1e-9), Settings(budget=1e-9)])
def test_deferred_records_equal_those_of_other_steps(
    loop: Loop, settings: Settings, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """All numbers of all steps, against a session in which none passes."""
    monkeypatch.setattr(Budget, "next_fast_path_steps", lambda self, deferred=False, multiprocess=False: 0)
    truth, _, _ = steps_of(loop, Settings("minimal"))
    monkeypatch.undo()
    request.getfixturevalue("brief")
    steps, session, recorded = steps_of(loop, settings)
    assert session.calls == sum(len(step.backwards) for step in truth)
    if settings.budget is None:
        assert session.budget.steps_without_record == 0
        assert numbers(steps) == numbers(truth)
    else:
        found = {row[0]: row for row in numbers(steps)}
        assert len(found) == len(steps) == len(truth) - session.budget.steps_without_record
        assert all(found[row[0]] == row for row in numbers(truth) if row[0] in found)
    if loop not in UNTOLD:
        assert (
            session.budget.deferred_records > 10 and session.budget.steps_without_record == 0
        )  # each step has its record, and its loss
    else:
        assert session.budget.deferred_records == 0
    assert session.budget.steps == len(truth) == session.schedule.steps.index
    calls = [number for step in steps for number in step.backwards]
    assert calls == sorted(set(calls)) and set(recorded) <= set(calls)


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_losses_equal_those_of_recorded_steps(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the first steps, before an optimizer has said what it holds."""
    monkeypatch.setattr(Budget, "next_fast_path_steps", lambda self, deferred=False, multiprocess=False: 0)
    recorded, counted = steps_of(loop, Settings())[0], steps_of(loop, Settings("minimal"))[0]
    assert [(s.index, s.loss, s.calls, s.scale) for s in counted] == [
        (s.index, s.loss, s.calls, s.scale) for s in recorded
    ]


def test_durations_cover_the_time_between_backward_calls(brief: None) -> None:
    def loop() -> None:
        net, data = model(), batches()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            net(next(data)).square().mean().backward()
            ends.append(time.perf_counter())
            optimizer.step()

    ends: list[float] = []
    begin = time.perf_counter()
    steps, session, _ = steps_of(loop, Settings("minimal"))
    assert session.budget.deferred_records > 20
    assert sum(step.seconds for step in steps) <= time.perf_counter() - begin
    assert all(0 <= step.watching <= step.seconds for step in steps)
    # Each began when the one before was over, and ended after its backward: the ends are in between.
    at = begin
    for step, backward, following in zip(steps, ends, [*ends[1:], float("inf")], strict=True):
        at += step.seconds
        assert at < following, step.index
        assert step.index == 0 or at > backward - 1.0


def test_a_script_that_ends_between_deferred_records_loses_none(brief: None) -> None:
    class Over(Exception):
        pass

    def loop() -> None:
        net, data = model(), batches()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            net(next(data)).square().mean().backward()
            if step == at:
                raise Over
            optimizer.step()

    for at in range(30, 40):
        sink = Keeps()
        session = Session(sink, Settings("minimal"))
        session.start()
        with pytest.raises(Over):
            loop()
        session.stop()
        assert session.error is None
        assert [step.index for step in sink.steps] == [*range(at + 1)]
        assert sink.steps[-1].loss is not None and sink.steps[-1].backwards == (at,)


def test_deferred_records_need_room_in_the_budget() -> None:
    for length, told in ((5e-5, False), (1e-3, True)):
        budget = Budget(0.05)
        for _ in range(50):
            budget.charge_step(length + 1e-3, 1e-3, False, False)
        assert budget.affords_deferred_records() == told
        assert Budget(None).affords_deferred_records() is False
    watch = Budget(None, nodes=False)
    for _ in range(50):
        watch.charge_step(0.021, 1e-3, False, False)
    assert (
        watch.affords_deferred_records() and watch.next_fast_path_steps() == 0 and watch.next_fast_path_steps(True) > 1
    )


def test_a_stretch_ends_after_half_a_second_or_at_the_next_recorded_step() -> None:
    budget = Budget(None, nodes=False)
    for _ in range(50):
        budget.charge_step(0.021, 1e-3, False, False)
        budget.charge_fast_path_steps(1, 0.02, 1e-4)
    counts = [budget.next_fast_path_steps(True) for _ in range(100)]
    assert 1.5 * budgets.MAX_DEFERRED_SECONDS / 0.0199 >= max(counts) - 1 > 10 and len(set(counts)) > 5
    paid = Budget(0.05)
    paid.spent = budgets.FREE_SECONDS
    for _ in range(30):
        paid.charge_step(0.03, 0.01, True, False)
    seen = []
    for _ in range(300):
        paid.charge_step(0.021, 0.001, False, False)
        while not paid.wants_record():
            count = paid.next_fast_path_steps(True)
            paid.charge_fast_path_steps(count, 0.0201 * count, 1e-4 * count)
            seen.append(count)
        paid.charge_step(0.03, 0.01, True, False)
        assert paid.remaining_seconds - paid._reserve_s < 0.05  # it was not waited for longer than it took to pay
    assert max(seen[-50:]) <= 23  # twice what one costs, and what each pays
