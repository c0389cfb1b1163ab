"""Differentiable routing: the temperature is annealed until softmax is exactly one-hot and the router learns nothing more.

Report: https://github.com/pytorch/pytorch/issues/97851 (a soft choice that does not behave as expected), annealing as its users do
"""
import torch
from torch import nn

EXPECT = {"class": "dies-late", "kind": "zero-grad", "cut_marker": "CUT", "set": "first", "written": "2026-11-22"}


class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts, self.tau = nn.Linear(6, 3), nn.ModuleList(nn.Linear(6, 2) for _ in range(3)), 1.0

    def forward(self, x):
        weight = torch.softmax(self.router(x) / self.tau, 1)  # CUT
        return torch.stack([e(x) for e in self.experts], 1).mul(weight[:, :, None]).sum(1)


torch.manual_seed(0)
model = Routed()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(120):
    model.tau = max(1e-7, 0.8**step)
    x = torch.randn(16, 6)
    loss = (model(x) - x[:, :2].abs()).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", model.router.weight.grad.abs().max().item())
