"""The forward that a closure runs inside an optimizer's step is observed, and the step's own work is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

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
