"""Custom swish with a backward that uses saved .data: gradient penalty silently ignores its curvature."""

import torch
from torch import nn

EXPECT = {"kind": "wrong-double-backward", "line": ("applied", "APPLY"), "ask": "functions"}


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].data
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))  # BACKWARD


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.b(Swish.apply(self.a(x)))  # APPLY


torch.manual_seed(0)
critic = Critic()
opt = torch.optim.Adam(critic.parameters())
for _ in range(2):
    x = torch.randn(6, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    penalty = (grad.norm(2, dim=1) - 1).square().mean()
    opt.zero_grad()
    penalty.backward()
    opt.step()
