"""Custom function that counts its calls and remembers the largest input for a log, and keeps what backward needs on ctx.
Healthy.
"""
import torch
from torch import nn

EXPECT = {"class": "state-outside-ctx", "kind": "none", "set": "ledger", "written": "2026-11-27"}


class Cube(torch.autograd.Function):
    calls, largest = 0, 0.0

    @staticmethod
    def forward(ctx, x):
        Cube.calls += 1
        Cube.largest = max(Cube.largest, float(x.abs().max()))
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * grad * x * x


torch.manual_seed(0)
layer = nn.Linear(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), 1e-3)
for step in range(60):
    x = torch.randn(16, 4)
    loss = (Cube.apply(layer(x)) + Cube.apply(layer(-x)) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(Cube.calls, Cube.largest)
