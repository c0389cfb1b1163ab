"""The forward that a closure runs inside an optimizer's step is observed, and the step's own work is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import backprobe
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import Cut


class WithoutNoGrad(torch.optim.Optimizer):
    """An optimizer of the script that leaves gradient mode on, and writes through ``.data``."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> Any:
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    update = p * 0 + p.grad
                    p.data.add_(update.detach(), alpha=-group["lr"])
        return loss


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-2),
    "lbfgs": lambda params: torch.optim.LBFGS(params, lr=1e-2, max_iter=2),
    "its own": lambda params: WithoutNoGrad(params, lr=1e-2),
}


def trace_of(make: Callable[[Any], Any], detaches: bool, budget: Any = None) -> Any:
    torch.manual_seed(0)
    body, head = nn.Linear(4, 8), nn.Linear(8, 3)
    model = nn.ModuleDict({"body": body, "head": head})
    collector = Collector()
    session = Session(collector, Settings(budget=budget))
    session.start()
    optimizer = make(model.parameters())

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        features = body(torch.randn(16, 4))
        if detaches:
            features = features.detach()
        loss = head(features).square().mean()
        loss.backward()
        return loss

    for _ in range(20):
        optimizer.step(closure)
    session.stop()
    assert session.error is None, repr(session.error)
    assert session.events.faults.unseen() == []
    return collector.trace(session)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_detach_in_a_closure_is_found(name: str) -> None:
    trace = trace_of(OPTIMIZERS[name], True)
    cuts = {(cut.op, cut.site.function) for cut in trace.facts.of(Cut) if cut.arrived is not None}
    assert cuts == {("detach", "closure")}
    first = trace.findings[0]
    assert (first.kind, first.sites[0].role, first.sites[0].site.function) == ("none-grad", "cut", "closure")
    assert set(first.parameters) == {"body.weight", "body.bias"}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_detaches_nothing(name: str) -> None:
    trace = trace_of(OPTIMIZERS[name], False)
    assert not [cut for cut in trace.facts.of(Cut) if cut.arrived is not None]
    assert not list(trace.findings)


class Spoils(torch.optim.Optimizer):
    """Calls its closure three times in a step, and writes NaN to a weight before, between or after these calls."""

    def __init__(self, params: Any, spoiled: int, before_call: int) -> None:
        super().__init__(params, {})
        self.steps, self._spoiled, self._before_call = 0, spoiled, before_call

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        for i in range(4):
            if (self.steps - 1, i) == (self._spoiled, self._before_call):
                self.param_groups[0]["params"][0].fill_(torch.nan)
            if i < 3:
                with torch.enable_grad():
                    loss = closure()
        return loss


def trace_of_spoiled(spoiled: int, before_call: int, budget: float | None) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    with backprobe.trace(budget=budget) as trace:
        optimizer = Spoils(model.parameters(), spoiled, before_call)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(torch.randn(16, 4)).square().mean()
            loss.backward()
            return loss

        for _ in range(spoiled + 2):
            optimizer.step(closure)
    return trace


@pytest.mark.parametrize("budget", [None, 1e-9], ids=["every step", "few steps"])
@pytest.mark.parametrize("spoiled", [1, 60])
def test_a_weight_that_a_step_spoils_between_the_calls_of_its_closure(spoiled: int, budget: float | None) -> None:
    first = trace_of_spoiled(spoiled, 1, budget).findings[0]
    assert (first.tensor, first.step) == ("weight", spoiled)
    if budget is not None and spoiled > 1:  # the step was not recorded
        assert "between the calls of the optimizer's closure, not all of which were recorded" in first.title
        assert first.confidence != "certain"
        return
    assert first.title == "weight became NaN, between the calls of the optimizer's closure; the loss became NaN"
    assert [site.role for site in first.sites] == ["entered", "failed"]
    assert first.evidence["held"] and "between two calls of its closure" in first.advice


@pytest.mark.parametrize("before_call", [0, 3])
def test_a_weight_that_a_step_spoils_before_or_after_the_calls_of_its_closure(before_call: int) -> None:
    first = trace_of_spoiled(1, before_call, None).findings[0]
    assert "closure" not in first.title + first.advice
