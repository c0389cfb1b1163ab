"""Equivariant network on a graph with self edges: the length of a zero displacement in the plane has no derivative.

Report: https://github.com/e3nn/e3nn/issues/112
"""
import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "angle",
    "set": "first", "written": "2026-11-22",
}


class Rho(nn.Module):
    def forward(self, d):
        return torch.hypot(d[:, 0], d[:, 1])  # CULPRIT


class Force(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift, self.angle, self.mlp = nn.Linear(3, 3, bias=False), Rho(), nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, pos, i, j):
        pos = pos + self.shift(pos)
        d = pos[i] - pos[j]
        phi = self.angle(d) - d[:, 2]
        return self.mlp(torch.stack([phi.sin(), phi.cos(), d.square().sum(1)], 1)).sum()


torch.manual_seed(1)
model = Force()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(40):
    pos = torch.randn(7, 3)
    i, j = torch.randint(0, 7, (12,)), torch.randint(0, 7, (12,))
    if step < 25:
        j = torch.where(i == j, (j + 1) % 7, j)
    else:
        i[0] = j[0]  # periodic images: the new loader lists self edges
    loss = (model(pos, i, j) - 1.0).square()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", model.shift.weight.isnan().any().item())
