"""Changes in a second phase of a script: another optimizer, an unfrozen part, random numbers in a checkpoint."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from watching import watched

from backprobe.observe.session import Settings
from backprobe.records import Finding

#: Every step recorded, and of most steps nothing but the loss.
MODES = [Settings(), Settings(budget=1e-9)]


def found(script: Any, settings: Settings) -> list[Finding]:
    torch.manual_seed(0)
    random.seed(0)
    session, sink = watched(settings)
    session.start()
    try:
        script()
    except torch.utils.checkpoint.CheckpointError as error:
        session.context.raised = error
    session.stop()
    assert session.error is None, repr(session.error)
    return list(sink.trace(session).findings)


def steps(net: nn.Module, parameters: Any, count: int) -> None:
    optimizer = torch.optim.SGD(list(parameters), 1e-2)
    for _ in range(count):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("settings", MODES)
@pytest.mark.parametrize("clears", [False, True])
def test_a_closure_of_an_optimizer_that_starts_late(settings: Settings, clears: bool) -> None:
    def script() -> None:
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        steps(net, net.parameters(), 100)
        optimizer = torch.optim.LBFGS(net.parameters(), lr=0.01, max_iter=3)
        x = torch.randn(16, 4)

        def closure() -> Any:
            if clears:
                optimizer.zero_grad()
            loss = (net(x) - 1).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        for _ in range(12):
            optimizer.step(closure)

    assert [f.kind for f in found(script, settings)] == ([] if clears else ["gradient-not-cleared"])


@pytest.mark.parametrize("settings", MODES)
@pytest.mark.parametrize("added", [False, True])
def test_unfreezing_a_part_that_an_earlier_optimizer_trained(settings: Settings, added: bool) -> None:
    def script() -> None:
        body, head = nn.Linear(4, 4), nn.Linear(4, 1)
        before = nn.Sequential(body, nn.Linear(4, 2))
        steps(before, before.parameters(), 20)
        body.requires_grad_(False)
        net = nn.Sequential(body, nn.Tanh(), head)
        optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 1e-2)
        for step in range(60):
            if step == 20:
                body.requires_grad_(True)
                if added:
                    optimizer.add_param_group({"params": list(body.parameters())})
            optimizer.zero_grad()
            net(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()

    told = [(f.kind, set(f.parameters)) for f in found(script, settings) if f.kind == "parameter-not-in-optimizer"]
    assert told == ([] if added else [("parameter-not-in-optimizer", {"net.0.weight", "net.0.bias"})])


@pytest.mark.parametrize("settings", MODES)
@pytest.mark.parametrize("added", [False, True])
def test_a_part_that_an_earlier_optimizer_trained_and_a_later_one_does_not_hold(
    settings: Settings, added: bool
) -> None:
    """The part is frozen when the later optimizer is made, and thawed in a step that need not have been recorded."""

    def script() -> None:
        body, head = nn.Linear(4, 8), nn.Linear(8, 1)
        net = nn.Sequential(body, nn.Tanh(), head)
        steps(net, net.parameters(), 60)
        body.requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 1e-2)
        for step in range(200):
            if step == 50:
                body.requires_grad_(True)
                if added:
                    optimizer.add_param_group({"params": list(body.parameters())})
            net.zero_grad()
            net(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()

    told = [(f.kind, set(f.parameters)) for f in found(script, settings)]
    assert told == ([] if added else [("parameter-not-in-optimizer", {"0.weight", "0.bias"})])


@pytest.mark.parametrize("settings", MODES)
def test_parts_that_are_frozen_in_turn_are_trained(settings: Settings) -> None:
    """Each is thawed when it has been trained, as at the end of the last step."""

    def script() -> None:
        one, other = nn.Linear(4, 4), nn.Linear(4, 1)
        net = nn.Sequential(one, other)
        optimizers = [torch.optim.SGD(part.parameters(), 1e-2) for part in (one, other)]
        for step in range(60):
            kept, optimizer = (other, one)[step % 2], optimizers[step % 2]
            kept.requires_grad_(False)
            optimizer.zero_grad()
            net(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            kept.requires_grad_(True)

    assert found(script, settings) == []


class Drops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.rate = nn.Linear(4, 4), 0.0

    def forward(self, x: Any) -> Any:
        x = x.tanh()
        if random.random() < self.rate:  # here
            return x
        return x + self.linear(x).sin()


@pytest.mark.parametrize("settings", MODES)
def test_a_random_number_in_a_checkpoint(settings: Settings) -> None:
    """In a step that is not recorded too its line is named, and no operation that was not seen."""

    def script() -> None:
        net = Drops()
        optimizer = torch.optim.SGD(net.parameters(), 1e-2)
        for step in range(400):
            net.rate = 0.0 if step < 40 else 0.5
            optimizer.zero_grad()
            x = torch.randn(8, 4, requires_grad=True)
            checkpoint(net, x, use_reentrant=False).square().mean().backward()
            optimizer.step()

    first, *_ = found(script, settings)
    assert (first.kind, first.sites[0].role) == ("checkpoint-mismatch", "cause")
    assert first.sites[0].site.text.endswith("# here")
    assert "a random number is drawn" in first.title
    assert "the same operations" not in first.title
