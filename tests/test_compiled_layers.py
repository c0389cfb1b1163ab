"""Separately compiled layers that share one graph: which of them a finding names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import backprobe
from backprobe.observe.trackers import compiled as kept
from backprobe.observe.trackers.compiled import CompiledRegionTracker

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("fresh_dynamo")]
LAYERS, STEPS, FAULT_STEP = 7, 5, 3


class Layer(nn.Module):
    def __init__(self, cuts: bool) -> None:
        super().__init__()
        self.inner, self.scale, self.cuts = nn.Linear(6, 6), nn.Parameter(torch.ones(6)), cuts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.scale.detach() if self.cuts else self.scale  # CUT
        return x + self.inner(x) * scale.sqrt()  # ROOT


def net_of(cuts: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(*(Layer(cuts) for _ in range(LAYERS)))
    for layer in net:
        layer.compile(backend="aot_eager")
    return net


def findings(net: nn.Sequential, late: Callable[[], Any], every: int = 1) -> list[Any]:
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with backprobe.trace(net, budget=None, every=every) as trace:
        for step in range(STEPS):
            if step == FAULT_STEP:
                late()
            optimizer.zero_grad()
            net(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()
    return trace.findings


@pytest.mark.parametrize("layer", [0, 2, LAYERS - 1])
@pytest.mark.parametrize("value", [-1.0, 0.0])
@pytest.mark.parametrize("every", [1, 1000])
def test_the_layer_that_went_bad_is_named(layer: int, value: float, every: int) -> None:
    net = net_of()

    def late() -> None:
        with torch.no_grad():
            net[layer].scale[1] = value

    found = findings(net, late, every)[0]
    if (
        every > 1 and not value and layer
    ):  # only a few gradients are inspected: the finding of the next loss has this step
        assert (found.kind, found.parameters, found.step) == ("nonfinite-backward", (f"{layer}.scale",), FAULT_STEP)
        assert found.confidence != "certain"
        return
    kind = "nonfinite-forward" if value else "nonfinite-backward"
    assert (found.kind, found.module, found.step) == (kind, str(layer), FAULT_STEP)
    assert [s.site.text for s in found.sites if s.role == "cause"] == [
        "return x + self.inner(x) * scale.sqrt()  # ROOT"
    ]
    if every == 1:
        assert found.confidence == "certain"


def test_lost_gradients_of_each_layer_are_named() -> None:
    found = findings(net_of(cuts=True), lambda: None)
    lost = [f for f in found if f.kind == "none-grad"]
    assert {p for f in lost for p in f.parameters} == {f"{i}.scale" for i in range(LAYERS)}
    assert all(s.site.text.endswith("# CUT") for f in lost for s in f.sites if s.role == "cut")
    assert any(s.role == "cut" for f in lost for s in f.sites)


def test_calls_go_with_their_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation with gradients on calls regions without end."""
    made: list[CompiledRegionTracker] = []
    begin = CompiledRegionTracker.__init__

    def noted(self: CompiledRegionTracker, context: Any) -> None:
        begin(self, context)
        made.append(self)

    monkeypatch.setattr(CompiledRegionTracker, "__init__", noted)
    net, x = net_of(), torch.randn(4, 6)
    with backprobe.trace(net, budget=None):
        for _ in range(5):
            net(x)
        (tracker,) = made
        assert len(tracker._region_calls) == 0
        out = net(x)
        assert len(tracker._region_calls) == LAYERS
        monkeypatch.setattr(kept, "MAX_LIVE_CALLS", LAYERS + 2)
        other = net(x)
        assert len(tracker._region_calls) == LAYERS + 2 and tracker._regions_with_dropped_calls
        (out + other).sum().backward()
        assert not tracker._region_calls and not tracker._regions_with_dropped_calls


class Bounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(6, 6), nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x) * self.scale.clamp(0.5, 2.0)  # BOUND


@pytest.mark.parametrize("layer", [None, 0, LAYERS - 1])
def test_a_layer_in_which_a_parameter_dies_late(layer: int | None) -> None:
    """Its graph was compiled long before; the others go on learning."""
    torch.manual_seed(0)
    net = nn.Sequential(*(Bounded() for _ in range(LAYERS)))
    for one in net:
        one.compile(backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(30):
            if step == 12 and layer is not None:
                with torch.no_grad():
                    net[layer].scale.fill_(0.2)  # type: ignore[operator, union-attr]
            optimizer.zero_grad()
            net(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()
    if layer is None:
        assert trace.findings == []
        return
    (found,) = trace.findings
    assert (found.kind, found.module, found.step) == ("zero-grad", str(layer), 12)
    assert found.parameters == (f"{layer}.scale",) and found.evidence["learned_before"]
    assert [s.site.text.partition("# ")[2] for s in found.sites if s.role == "cut"] == ["BOUND"]
