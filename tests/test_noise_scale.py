"""The gradient noise scale of accumulated steps, against what is known of the gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from watching import watched

from backprobe.observe.session import Settings
from backprobe.observe.statistics import noise
from backprobe.observe.statistics.noise import MIN_MEAN_WEIGHT, estimates
from backprobe.traces import Statistics


def seen(script: Callable[[], None], every: int = 1) -> Statistics:
    session, sink = watched(Settings("minimal", layer_stats=every))
    session.start()
    script()
    session.stop()
    assert session.error is None
    return sink.trace(session).statistics


class Plain:
    """A reference for the running means, computed from complete gradients of micro-batches."""

    def __init__(self) -> None:
        self.looks, self.trace, self.square = 0, 0.0, 0.0

    def add(self, gradients: list[torch.Tensor]) -> float:
        k = len(gradients)
        mean = torch.stack(gradients).mean(0)
        small, big = float(torch.stack([g.square().sum() for g in gradients]).mean()), float(mean.square().sum())
        square = (k * big - small) / (k - 1)
        trace = (small - big) / (1 - 1 / k)
        self.looks += 1
        rate = max(1 / self.looks, MIN_MEAN_WEIGHT)
        self.trace += rate * (trace - self.trace)
        self.square += rate * (square - self.square)
        return self.trace / self.square if self.square > 0 else math.nan


def flat(net: nn.Module) -> torch.Tensor:
    return torch.cat(
        [torch.zeros(p.numel()).double() if p.grad is None else p.grad.double().flatten() for p in net.parameters()]
    )


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize("how", ["none", "zeros", "scaled", "cleared", "clipped"])
def test_it_is_as_the_plain_way_has_it(how: str) -> None:
    net, plain = model(), Plain()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=how == "scaled", growth_interval=3)
    expected: dict[int, float] = {}

    def script() -> None:
        optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
        for step in range(30):
            optimizer.zero_grad(set_to_none=how != "zeros")
            if how == "cleared":
                net(torch.randn(16, 4)).square().mean().backward()
                optimizer.zero_grad()
            scale, gradients, before = scaler.get_scale(), [], torch.zeros(58).double()
            for _ in range(2 + step % 3):
                scaler.scale((net(torch.randn(16, 4)) - 1).square().mean() / 4).backward()
                now = flat(net)
                gradients.append((now - before) / scale)
                before = now
            if step:  # an optimizer is known from its first step on
                expected[step] = plain.add(gradients)
            scaler.unscale_(optimizer)
            if how == "clipped":
                nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            scaler.step(optimizer)
            scaler.update()

    found = seen(script)
    assert found.curve("micro_batches", "AdamW") == [(step, 2 + step % 3) for step in expected]
    wanted = {step: value for step, value in expected.items() if not math.isnan(value)}
    assert len(wanted) > 20
    assert dict(found.curve("noise_scale", "AdamW")) == pytest.approx(wanted, rel=2e-3)
    assert not {"noise_small", "noise_big"} & {name.partition("|")[0] for one in found for name in one.names}


@pytest.mark.parametrize("batch", [1, 4])
def test_of_a_linear_model_it_is_that_of_its_data(batch: int) -> None:
    """Of the mean of ``w x`` the gradient is the mean of x: its noise is that of the data."""
    torch.manual_seed(0)
    net, sigma, mean = nn.Linear(64, 1, bias=False), 0.5, torch.full((64,), 0.25)

    def script() -> None:
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
        for _ in range(150):
            optimizer.zero_grad()
            for _ in range(8):
                (net(mean + sigma * torch.randn(batch, 64)).mean() / 8).backward()
            optimizer.step()

    curve = seen(script).curve("noise_scale", "SGD")
    known = sigma**2 * 64 / batch / float(mean.square().sum())
    late = [value for step, value in curve if step > 50]
    assert sum(late) / len(late) == pytest.approx(known, rel=0.1)  # the estimates' own deviation is 3%


def test_estimates_are_unbiased() -> None:
    torch.manual_seed(0)
    mean, k = torch.full((10,), 0.3, dtype=torch.float64), 3
    found = []
    for _ in range(20_000):
        drawn = mean + torch.randn(k, 10, dtype=torch.float64)
        found.append(estimates(float(drawn.square().sum(1).mean()), float(drawn.mean(0).square().sum()), k))
    trace, square = (sum(values) / len(values) for values in zip(*found, strict=True))
    assert trace == pytest.approx(10, rel=0.01)
    assert square == pytest.approx(0.9, rel=0.05)


def test_of_large_parameters_some_elements_stand_for_all(monkeypatch: Any) -> None:
    """Over a round of looks each element counts as often as any other."""
    monkeypatch.setattr(noise, "MAX_COPIED_ELEMENTS", 16)
    torch.manual_seed(0)
    p = nn.Parameter(torch.zeros(10, 10))
    optimizer = torch.optim.SGD([p], 0.1)
    gradients = [torch.randn(10, 10), torch.randn(10, 10)]
    small = big = 0.0
    apart = -(-100 // 16) | 1
    for turn in range(apart):
        micro = noise.MicroBatches(optimizer, turn)
        p.grad = None
        micro.restart(True)
        for gradient in gradients:
            micro.call_begins()
            p.grad = gradient.clone() if p.grad is None else p.grad + gradient
            micro.call_returned()
        numbers = noise.Numbers()
        micro.add_quantities("SGD", None, numbers)
        numbers.send()
        found = {(q, name): v for q, one in numbers.read().items() for name, v in one.items()}
        small, big = small + found["noise_small", "SGD"] / apart, big + found["noise_big", "SGD"] / apart
    assert small == pytest.approx(float(sum(g.square().sum() for g in gradients)) / 2, rel=1e-5)
    assert big == pytest.approx(float((sum(gradients) / 2).square().sum()), rel=1e-5)


def one_call(net: Any, optimizer: Any) -> None:
    net(torch.randn(8, 4)).square().mean().backward()


def several_losses(net: Any, optimizer: Any) -> None:
    out = net(torch.randn(8, 4))
    out.square().mean().backward(retain_graph=True)
    out.abs().mean().backward()


def losses_of_one_forward(net: Any, optimizer: Any) -> None:
    out = net(torch.randn(8, 4))
    for loss in (out.square().mean(), out.abs().mean()):
        loss.backward(retain_graph=True)


def heads_in_turn(net: Any, optimizer: Any) -> None:
    out = net(torch.randn(8, 4))
    for last in (False, True):
        out.square().mean().backward(retain_graph=not last)


def other_places(net: Any, optimizer: Any) -> None:
    net(torch.randn(8, 4)).square().mean().backward()
    net(torch.randn(8, 4)).abs().mean().backward()


def cleared_between(net: Any, optimizer: Any) -> None:
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().mean().backward()


def written_between(net: Any, optimizer: Any) -> None:
    for _ in range(3):
        net(torch.randn(8, 4)).square().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)


def cleared_in_secret(net: Any, optimizer: Any) -> None:
    for _ in range(2):
        net(torch.randn(8, 4)).square().mean().backward()
        for p in net.parameters():
            p.grad.data.zero_()


def written_in_secret(net: Any, optimizer: Any) -> None:
    for _ in range(3):
        net(torch.randn(8, 4)).square().mean().backward()
        for p in net.parameters():
            p.grad.data.mul_(0.5)


@pytest.mark.parametrize(
    "calls",
    [
        one_call,
        several_losses,
        losses_of_one_forward,
        heads_in_turn,
        other_places,
        cleared_between,
        written_between,
        cleared_in_secret,
        written_in_secret,
    ],
)
def test_calls_that_are_no_micro_batches(calls: Any) -> None:
    net = model()

    def script() -> None:
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
        for _ in range(6):
            optimizer.zero_grad()
            calls(net, optimizer)
            optimizer.step()

    found = seen(script)
    touched = calls in (written_between, cleared_in_secret, written_in_secret)  # else one look of four, after a while
    assert len(found.curve("clip_factor", "SGD")) == (5 if touched else 4)
    assert not found.names("micro_batches") and not found.names("noise_scale")


def test_not_of_gradients_in_half_precision() -> None:
    net = model().to(torch.bfloat16)

    def script() -> None:
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
        for _ in range(4):
            optimizer.zero_grad()
            for _ in range(2):
                net(torch.randn(8, 4, dtype=torch.bfloat16)).float().square().mean().backward()
            optimizer.step()

    found = seen(script)
    assert found.names("clip_factor") and not found.names("micro_batches")


def test_an_expert_that_gets_no_gradient_at_first() -> None:
    """Only the second backward call creates the gradient of that expert."""
    net, plain = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)]), Plain()
    expected: dict[int, float] = {}

    def script() -> None:
        optimizer = torch.optim.SGD(net.parameters(), 1e-2)
        for step in range(5):
            optimizer.zero_grad()
            gradients, before = [], torch.zeros(20).double()
            for at in (0, 1, 0):
                (net[at](torch.randn(8, 4)) - 3).square().mean().backward()
                gradients.append(flat(net) - before)
                before = flat(net)
            if step:
                expected[step] = plain.add(gradients)
            optimizer.step()

    found = seen(script)
    wanted = {step: value for step, value in expected.items() if not math.isnan(value)}
    assert wanted and dict(found.curve("noise_scale", "SGD")) == pytest.approx(wanted, rel=1e-3)


def test_the_script_is_as_alone() -> None:
    def run(watch: bool) -> Any:
        torch.manual_seed(3)
        net = model()
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        session, _ = watched(Settings("minimal", layer_stats=1))
        if watch:
            session.start()
        for _ in range(5):
            optimizer.zero_grad()
            for _ in range(3):
                net(torch.randn(8, 4)).square().mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
        if watch:
            session.stop()
        return [*(p.detach().clone() for p in net.parameters()), torch.get_rng_state()]

    assert all(torch.equal(a, b) for a, b in zip(run(False), run(True), strict=True))
