"""Checkpoints whose first use is in a step that the session does not inspect closely."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import backprobe
from backprobe.records import Finding

FIRST_CHECKPOINTED_STEP, STEPS = 8, 16


class Stage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.seen = nn.Linear(6, 6), nn.BatchNorm1d(6), []
        self.keeps = False

    def forward(self, x):
        x = x * 2  # before any module of the region is called
        x = self.linear(x)
        if self.keeps:
            x = torch.stack([x, *self.seen]).mean(0)
            if self.seen:
                x = torch.cat([x, self.seen[0]], 1)[:, :6].tanh()
            self.seen.append(x.detach())
        return self.norm(x).relu()


class Net(nn.Module):
    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.stages = nn.ModuleList(Stage() for _ in range(2))
        self.whole, self.checkpointed = whole, False

    def forward(self, x):
        for stage in self.stages:
            # A function whose first op is none of a module's, or the module itself.
            region = stage if self.whole else lambda x, stage=stage: stage(x.sin())
            x = checkpoint(region, x, use_reentrant=False) if self.checkpointed else region(x)
        return x


def trained(net: Net, keeps: bool = False) -> tuple[list[Finding], BaseException | None]:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    raised: BaseException | None = None
    with backprobe.trace(net, budget=None) as trace:
        try:
            for step in range(STEPS):
                net.checkpointed = step >= FIRST_CHECKPOINTED_STEP
                for stage in net.stages:
                    stage.keeps, stage.seen = keeps and step >= FIRST_CHECKPOINTED_STEP, []
                optimizer.zero_grad()
                net(torch.randn(16, 6)).square().mean().backward()
                optimizer.step()
        except torch.utils.checkpoint.CheckpointError as error:
            raised = error
    return trace.findings, raised


@pytest.mark.parametrize("whole", [True, False])
def test_state_changed_by_recomputation_is_reported_once_with_its_region(whole: bool) -> None:
    findings, raised = trained(Net(whole))
    assert raised is None
    (found,) = findings
    assert found.kind == "checkpoint-side-effect" and len(found.evidence["buffers"]) == 6
    ((role, text),) = [(site.role, site.site.text) for site in found.sites]
    assert role == "region" and "checkpoint(region, x" in text


@pytest.mark.parametrize("whole", [True, False])
def test_a_region_that_reads_what_it_stored_itself(whole: bool) -> None:
    findings, raised = trained(Net(whole), keeps=True)
    assert raised is not None
    found = next(f for f in findings if f.kind == "checkpoint-mismatch")
    assert found.step == FIRST_CHECKPOINTED_STEP and found.evidence["difference"] != "unknown"
    assert any("self.seen" in site.site.text for site in found.sites if site.role == "cause")


def test_frozen_statistics_are_fine() -> None:
    net = Net(True)
    net.eval()
    assert trained(net) == ([], None)


class Dropped(nn.Module):
    """A layer that ends with a dropout: a recomputation has all that it needs before that gives anything."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return nn.functional.dropout(self.linear(x).tanh(), 0.5, self.training)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("p", ["train", "eval"])
def test_another_mask_in_a_recomputation(kept: bool, p: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(Dropped() for _ in range(3))).train(p == "train")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(STEPS):
            x = torch.randn(8, 16)
            for layer in net:
                x = (
                    checkpoint(layer, x, use_reentrant=False, preserve_rng_state=kept)
                    if step >= FIRST_CHECKPOINTED_STEP
                    else layer(x)
                )
            optimizer.zero_grad()
            x.square().mean().backward()
            optimizer.step()
    if kept or p == "eval":
        assert trace.findings == []
        return
    (found,) = trace.findings
    assert (found.kind, found.step) == ("checkpoint-mismatch", FIRST_CHECKPOINTED_STEP)
    assert found.sites[0].site.text.startswith("return nn.functional.dropout(")
