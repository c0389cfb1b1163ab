"""Gradient penalty through an own activation whose backward is once_differentiable: the error comes from a node of C++.

Report: https://github.com/pytorch/pytorch/issues/1483 (not differentiable twice, WGAN-GP)
"""
import torch
from torch import nn
from torch.autograd.function import once_differentiable

EXPECT = {
    "class": "cpp-error", "kind": "backward-error", "apply_marker": "CULPRIT",
    "set": "first", "written": "2026-11-22",
}


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return g * s * (1 + x * (1 - s))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 16), nn.Linear(16, 1)

    def forward(self, x):
        h = Swish.apply(self.a(x))  # CULPRIT
        return self.b(h)


torch.manual_seed(0)
critic = Critic()
opt = torch.optim.Adam(critic.parameters(), 1e-4)
for step in range(30):
    real, fake = torch.randn(8, 4) + 1, torch.randn(8, 4)
    loss = critic(fake).mean() - critic(real).mean()
    if step % 10 == 9:  # lazy regularisation
        mid = (real + fake).div(2).requires_grad_()
        (g,) = torch.autograd.grad(critic(mid).sum(), mid, create_graph=True)
        loss = loss + 10 * (g.norm(dim=1) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
