"""Loss scalers that a script implements itself: a factor that overflows float16 is normal there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from watching import watched

from backprobe.observe.session import Settings


def script(how: str, steps: int = 30) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).half()
    masters = [nn.Parameter(p.detach().float()) for p in net.parameters()]
    optimizer, scale = torch.optim.SGD(masters, 1e-2), 2.0**20
    for _ in range(steps):
        loss = F.cross_entropy(net(torch.randn(8, 8).half()).float(), torch.arange(8) % 4)
        (loss * scale).backward()
        grads = [p.grad.float() / scale for p in net.parameters() if p.grad is not None]
        finite = all(bool(g.isfinite().all()) for g in grads)
        if finite or how == "steps anyway":
            for p, g in zip(masters, grads, strict=True):
                p.grad = g
            optimizer.step()
            with torch.no_grad():
                for p, master in zip(net.parameters(), masters, strict=True):
                    p.copy_(master)
        net.zero_grad()
        scale = scale if finite or how == "stays" else scale / 2


def kinds(how: str, **more: Any) -> list[str]:
    session, sink = watched(Settings(**more))
    session.start()
    script(how)
    session.stop()
    assert session.error is None
    return [finding.kind for finding in sink.trace(session).findings]


@pytest.mark.parametrize("more", [{}, {"budget": 0.02}])
def test_a_factor_that_comes_down_is_no_finding(more: Any) -> None:
    assert kinds("comes down", **more) == []


def test_one_that_stays_too_large_is() -> None:
    assert kinds("stays") == ["nonfinite-backward"]


def test_an_optimizer_that_steps_anyway_is_reported() -> None:
    assert kinds("steps anyway")[0] == "nonfinite-backward"


def test_a_nonfinite_gradient_that_another_call_adds_to_is_reported() -> None:
    """The second of two calls is finite, and the optimizer gets the sum."""
    torch.manual_seed(0)
    net = nn.Linear(8, 4).half()
    optimizer = torch.optim.SGD(net.parameters(), 1e-2)
    session, sink = watched(Settings())
    session.start()
    for step in range(4):
        optimizer.zero_grad()
        for scale in (2.0**24 if step == 2 else 1.0, 1.0):
            loss = F.cross_entropy(net(torch.randn(8, 8).half()).float(), torch.arange(8) % 4)
            (loss * scale).backward()
        optimizer.step()
    session.stop()
    first, *_ = sink.trace(session).findings
    assert (first.kind, first.step) == ("nonfinite-backward", 2)


def test_what_is_too_large_is_said_as_such() -> None:
    session, sink = watched(Settings())
    session.start()
    script("steps anyway", 1)
    session.stop()
    finding, *_ = sink.trace(session).findings
    assert "float16 holds no number above 65,504" in finding.title
    assert "GradScaler" in finding.advice


def test_where_nothing_is_in_half_precision_a_guard_does_not_hide_it() -> None:
    """A script that leaves out steps whose gradients are not finite has a fault all the same."""
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 1e-2)
    session, sink = watched(Settings())
    session.start()
    for step in range(12):
        out = net(torch.randn(8, 4)) * float(step != 5)
        (out.square().sum().sqrt() * 2.0).backward()
        if all(bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None):
            optimizer.step()
        optimizer.zero_grad()
    session.stop()
    assert [finding.kind for finding in sink.trace(session).findings] == ["nonfinite-backward"]
