"""Modes of the script around any part of a step: they get every op and call that they get alone, in order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from watching import Calls, Ops

import backprobe

STEPS = 40
PARTS = ("zero_grad", "forward", "backward", "step", "whole")


class Saved(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self) -> None:
        self.seen: list[str] = []

        def pack(t: torch.Tensor) -> torch.Tensor:
            self.seen.append(f"packed {list(t.shape)}")
            return t

        def unpack(t: torch.Tensor) -> torch.Tensor:
            self.seen.append(f"unpacked {list(t.shape)}")
            return t

        super().__init__(pack, unpack)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Dropout(0.1)
        self.token, self.attend = nn.Embedding(5, 6), nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        h = self.drop(F.relu(self.norm(self.conv(x + self.token(i)[:, None].expand(-1, 2, -1)))))
        h = h.transpose(1, 2)
        return self.head(self.attend(h, h, h)[0].mean(1))  # type: ignore[no-any-return]


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return 2 * grad * ctx.saved_tensors[0]


class Various(nn.Module):
    """A checkpoint, a custom function, hooks on tensors, a retained gradient, writes in place, a part in NumPy."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        self.seen = 0.0

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        h = self.first(x.mean(1))
        h.retain_grad()
        h = checkpoint(self.second, h, use_reentrant=False)
        h = Twice.apply(h.add_(1.0))  # type: ignore[no-untyped-call]
        h.register_hook(lambda grad: grad * 0.5)
        self.seen = float(np.abs(h.detach().numpy()).sum())
        return h[i % 4] + h.new_zeros(6).index_fill_(0, i[:1], 1.0)  # type: ignore[no-any-return]


def seen_of(model: Callable[[], nn.Module], make: Callable[[], Any], part: str, bad: bool) -> list[str]:
    """Train with a mode around one part of each step; return its calls. `bad`: one loss is NaN."""
    torch.manual_seed(0)
    net, mode = model(), make()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    x, i = torch.randn(8, 2, 6), torch.randint(5, (8,))
    on = {name: mode if name == part else contextlib.nullcontext() for name in PARTS}
    with on["whole"]:
        for step in range(STEPS):
            with on["zero_grad"]:
                optimizer.zero_grad()
            with on["forward"]:
                loss = net(x, i).square().mean()
                if bad and step == 25:
                    loss = loss * float("nan")
            with on["backward"]:
                loss.backward()
            with on["step"]:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
    return mode.seen  # type: ignore[no-any-return]


#: A run with a NaN is well until it comes; one without is as well afterwards.
RUNS = [*((part, True) for part in PARTS), ("whole", False)]


@pytest.mark.parametrize(
    ("part", "bad"), RUNS, ids=[f"{part}-{'one loss is NaN' if bad else 'well'}" for part, bad in RUNS]
)
@pytest.mark.parametrize("make", [Ops, Calls, Saved])
@pytest.mark.parametrize("model", [Attending, Various])
def test_a_mode_gets_the_same_calls_as_alone(
    model: Callable[[], nn.Module], make: Callable[[], Any], part: str, bad: bool
) -> None:
    alone = seen_of(model, make, part, bad)
    given: dict[str, Any]
    for given in ({}, {"budget": None}, {"level": "minimal"}, {"level": "full"}, {"layer_stats": 1}):
        with backprobe.trace(**given):
            watched = seen_of(model, make, part, bad)
        assert watched == alone, given
    assert alone or (make, part) in {(Saved, "zero_grad"), (Saved, "backward"), (Saved, "step")}
