"""An own square keeps an intermediate result on ctx: first derivatives are right, the penalty's are not.

Report: https://github.com/pytorch/pytorch/issues/58509
"""
import torch
from torch import nn

EXPECT = {
    "class": "custom-function", "kind": "wrong-double-backward", "apply_marker": "APPLY",
    "set": "first", "written": "2026-11-22",
}


class ScaledSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.twice = x * 2
        return ctx.twice.square()

    @staticmethod
    def backward(ctx, g):
        return 4 * ctx.twice * g


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.out = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.out(ScaledSquare.apply(self.lin(x)))  # APPLY


torch.manual_seed(0)
energy = Energy()
opt = torch.optim.Adam(energy.parameters(), 1e-3)
for step in range(15):
    pos = torch.randn(8, 3, requires_grad=True)
    (force,) = torch.autograd.grad(energy(pos).sum(), pos, create_graph=True)
    loss = (force + pos.detach()).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
