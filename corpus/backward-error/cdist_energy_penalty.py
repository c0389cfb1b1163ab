"""Learned metric with a force penalty: the backward of cdist has no derivative of its own, the error names an internal operation only.

Report: https://github.com/cornellius-gp/gpytorch/pull/869 (autograd of cdist and repeated derivatives)
"""
import torch
from torch import nn

EXPECT = {
    "class": "cpp-error", "kind": "backward-error", "source_marker": "CULPRIT",
    "set": "first", "written": "2026-11-22",
}


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.out = nn.Linear(3, 6), nn.Linear(1, 1)

    def forward(self, x):
        z = self.lift(x)
        d = torch.cdist(z, z[:2], p=1.0)  # CULPRIT
        return self.out(torch.tanh(d)[..., None]).sum()


torch.manual_seed(0)
energy = Energy()
opt = torch.optim.Adam(energy.parameters(), 1e-3)
for step in range(30):
    x = torch.randn(8, 3, requires_grad=True)
    e = energy(x)
    loss = (e - 1).square()
    if step >= 20:  # forces are fitted from here on
        (force,) = torch.autograd.grad(e, x, create_graph=True)
        loss = loss + force.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
