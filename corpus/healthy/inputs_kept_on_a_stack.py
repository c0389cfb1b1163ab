"""Custom square root that keeps its inputs on a stack, which backward takes in reverse order, and is applied twice in each
step. Healthy.
"""
import torch
from torch import nn

EXPECT = {"class": "state-outside-ctx", "kind": "none", "set": "ledger", "written": "2026-11-27"}
STACK = []


class SoftSqrt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        STACK.append(x.detach())
        return (x.square() + 1).sqrt()

    @staticmethod
    def backward(ctx, grad):
        x = STACK.pop()
        return grad * x / (x.square() + 1).sqrt()


torch.manual_seed(0)
first, second = nn.Linear(4, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 1e-2)
for step in range(60):
    x = torch.randn(16, 4)
    loss = (SoftSqrt.apply(second(SoftSqrt.apply(first(x)))) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
