"""Softplus with a backward of its own that keeps its input on the class: it is right with one view, and two views are
trained together.
"""
import torch
from torch import nn

EXPECT = {
    "class": "state-outside-ctx", "kind": "wrong-backward", "apply_marker": "APPLIED", "set": "ledger",
    "written": "2026-11-27",
}


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        Softplus.x = x.detach()
        return x.exp().log1p()

    @staticmethod
    def backward(ctx, grad):
        return grad * Softplus.x.sigmoid()


torch.manual_seed(0)
encoder = nn.Linear(6, 8)
optimizer = torch.optim.SGD(encoder.parameters(), 1e-2)
for step in range(60):
    x = torch.randn(16, 6)
    views = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
    first, second = (Softplus.apply(encoder(view)) for view in views)  # APPLIED
    loss = (first - second).square().mean() - 0.1 * first.var(0).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
