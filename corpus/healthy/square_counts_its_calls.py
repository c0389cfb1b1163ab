"""A function counts its calls and keeps a range on its class, and a cache by shape; its backward is right all the same.

It is applied twice before each backward.
"""

import torch
from torch import nn

EXPECT = {"class": "state-outside-ctx", "kind": None, "set": "ledger", "written": "2026-11-29"}
_ramps = {}


class RampedSquare(torch.autograd.Function):
    calls = 0
    largest = 0.0

    @staticmethod
    def forward(ctx, x):
        RampedSquare.calls += 1
        RampedSquare.largest = max(RampedSquare.largest, x.abs().max().item())
        if x.shape[-1] not in _ramps:
            _ramps[x.shape[-1]] = torch.linspace(0.5, 1.5, x.shape[-1])
        ctx.save_for_backward(x)
        ctx.call = RampedSquare.calls
        return x * x * _ramps[x.shape[-1]]

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        if RampedSquare.largest > 1e6:
            print("large inputs", RampedSquare.largest, "in call", ctx.call)
        return 2 * grad * x * _ramps[x.shape[-1]]


torch.manual_seed(0)
first, second = nn.Linear(6, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=1e-2)
for step in range(60):
    x = torch.randn(32, 6)
    y = x[:, :1] * x[:, 1:2]
    hidden = RampedSquare.apply(first(x))
    loss = (second(torch.tanh(hidden)) - y).square().mean() + 1e-3 * RampedSquare.apply(first(x.flip(0))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
