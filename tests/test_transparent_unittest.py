"""``unittest`` tests under a session: the stack of function modes has the same length throughout each test."""

from __future__ import annotations

import math
import unittest
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from watching import same, watched

import backprobe
from backprobe.observe.schedule import budget as budgets
from backprobe.observe.session import Settings


def depth() -> int:
    return int(torch._C._len_torch_function_stack())


@pytest.fixture
def nothing_to_spend(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is recorded but the first three, and those that trouble asks for; none passes."""
    monkeypatch.setattr(budgets, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(budgets, "MAX_STEPS_BETWEEN_RECORDED", 10**9)
    monkeypatch.setattr(budgets, "UNRECORDED_STEP_FRACTION", math.inf)


def by_optimizer() -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()

    return step


def by_hand() -> Callable[[], None]:
    w = torch.ones(3, requires_grad=True)

    def step() -> None:
        (w * 2).square().mean().backward()
        w.grad = None

    return step


def by_name() -> Callable[[], None]:
    w = torch.ones(3, requires_grad=True)
    return lambda: torch.autograd.backward([(w * 2).sum()])


def gradients_only() -> Callable[[], None]:
    w = torch.ones(3, requires_grad=True)

    def step() -> None:
        torch.autograd.grad((w * 2).sum(), [w])

    return step


class Compares(unittest.TestCase):
    """Compare the stack length as torch's ``TestCase`` does, and also at each step."""

    make = staticmethod(by_hand)
    at_start: int

    def setUp(self) -> None:
        self.at_start = depth()

    def tearDown(self) -> None:
        assert depth() == self.at_start

    def test_first(self) -> None:
        step = type(self).make()
        for _ in range(12):
            step()
            assert depth() == self.at_start

    test_second = test_first

    def test_evaluation(self) -> None:
        torch.manual_seed(0)
        model, x = nn.MultiheadAttention(16, 2, batch_first=True).eval(), torch.randn(2, 4, 16)
        with torch.no_grad():
            found = model(x, x, x)[0]
        type(self).evaluated = found


def run(make: Any, *names: str) -> None:
    result = unittest.TestResult()
    kind = type("Here", (Compares,), {"make": staticmethod(make)})
    for name in names or ("test_first", "test_second"):
        kind(name).run(result)
    assert result.wasSuccessful(), (result.errors + result.failures)[0][1]
    return getattr(kind, "evaluated", None)


SETTINGS = {
    "a budget": Settings(budget=0.05),
    "every third step": Settings(every=3),
    "no nodes": Settings(level="minimal"),
    "the first step": Settings(last=1),
}


@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.parametrize("make", [by_optimizer, by_hand, by_name, gradients_only])
@pytest.mark.parametrize("before", [0, 8])
def test_the_length_does_not_change_in_a_test(make: Any, how: str, before: int, nothing_to_spend: None) -> None:
    session, _ = watched(SETTINGS[how])
    session.start()
    try:
        step = make()
        for _ in range(before):  # the tests begin while the mode is on, or off
            step()
        on = depth()
        run(make)
        assert depth() == on
        for _ in range(20):  # every step is recorded or not again, as was asked for
            step()
        lengths = set()
        for _ in range(6):
            step()
            lengths.add(depth())
        if make is by_optimizer or (make is by_hand and how == "a budget"):  # others keep the mode on in any case
            assert lengths == ({0, 1} if how == "every third step" else {0})
    finally:
        session.stop()
    assert depth() == 0 and session.error is None, session.error


def test_an_evaluation_in_a_test_is_as_alone_though_the_mode_stays_on(nothing_to_spend: None) -> None:
    alone = run(by_hand, "test_evaluation")
    session, _ = watched(Settings(budget=0.05))
    session.start()
    try:
        run(by_optimizer)
        assert depth() == 1
        assert same(run(by_hand, "test_evaluation"), alone)
        assert depth() == 1
    finally:
        session.stop()
    assert depth() == 0 and session.error is None


def test_failures_in_an_unrecorded_step_are_reported(nothing_to_spend: None) -> None:
    def goes_bad() -> None:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        for step in range(9):
            optimizer.zero_grad()
            scale = math.inf if step == 7 else 1.0
            (model(torch.ones(3, 2)) * scale).sum().backward()
            lengths.append(depth())
            optimizer.step()

    class GoesBad(unittest.TestCase):
        def test(self) -> None:
            goes_bad()

    def in_a_test() -> None:
        result = unittest.TestResult()
        GoesBad("test").run(result)
        assert result.wasSuccessful(), result.errors

    found = []
    for run_it in (goes_bad, in_a_test):
        lengths: list[int] = []
        session, collector = watched(Settings(budget=0.05))
        session.start()
        try:
            run_it()
        finally:
            session.stop()
        assert session.error is None and lengths[0] == 1 and lengths[6] == (run_it is in_a_test)
        (first, *_) = collector.trace(session).findings
        found.append((first.kind, first.step, first.confidence, first.node, [(s.role, s.site) for s in first.sites]))
    assert found[0] == found[1] and found[0][:2] == ("nonfinite-forward", 7)


def test_a_trace_that_begins_in_a_test_keeps_its_budget(nothing_to_spend: None) -> None:
    class Inside(unittest.TestCase):
        def test(self) -> None:
            before = depth()
            step = by_optimizer()
            with backprobe.trace(budget="5%"):
                for _ in range(9):
                    step()
                    lengths.append(depth())
            assert depth() == before

    lengths: list[int] = []
    result = unittest.TestResult()
    Inside("test").run(result)
    assert result.wasSuccessful(), result.errors
    assert lengths[0] == 1 and lengths[-1] == 0
