"""Activation that keeps its input on its module for the backward; from step 30 on the same module is used in two layers.
"""
import torch
from torch import nn

EXPECT = {
    "class": "state-outside-ctx", "kind": "wrong-backward", "apply_marker": "APPLIED", "set": "ledger",
    "written": "2026-11-27",
}


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        module.saved = x.detach()
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, grad):
        s = ctx.module.saved.sigmoid()
        return grad * (s + ctx.module.saved * s * (1 - s)), None


class Activation(nn.Module):
    def forward(self, x):
        return Swish.apply(x, self)  # APPLIED


torch.manual_seed(0)
act, first, second = Activation(), nn.Linear(4, 16), nn.Linear(16, 16)
head = nn.Linear(16, 1)
modules = nn.ModuleList([act, first, second, head])
optimizer = torch.optim.Adam(modules.parameters(), 1e-3)
for step in range(80):
    x = torch.randn(16, 4)
    hidden = act(first(x))
    hidden = act(second(hidden)) if step >= 30 else torch.tanh(second(hidden))
    loss = (head(hidden) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
