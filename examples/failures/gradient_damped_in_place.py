"""A gradient is damped in place inside a residual block: the skip path, which shares it, is damped as well."""

import torch
from torch import nn

EXPECT = {"kind": "gradient-overwritten", "line": ("mutated", "HERE")}


class Damp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.mul_(ctx.factor), None  # HERE


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))

    def forward(self, x):
        return x + Damp.apply(self.net(x), 0.3)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), *(Block(16) for _ in range(4)), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(60):
    x = torch.randn(32, 6)
    loss = (model(x).squeeze(1) - x.square().sum(1).sin()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
