"""Gravitational lens profile: two formulas joined with where; outside its range one takes the root of a negative number.

Report: https://github.com/Ciela-Institute/caustics/pull/83
"""
import torch
from torch import nn

EXPECT = {
    "class": "where-nan", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "profile",
    "set": "first", "written": "2026-11-22",
}


class Profile(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, r):
        x = r / self.scale
        inner = torch.sqrt(1 - x * x)  # CULPRIT
        outer = torch.atan(x) * x
        return torch.where(x < 1, inner, outer)


class Lens(nn.Module):
    def __init__(self):
        super().__init__()
        self.profile, self.gain = Profile(), nn.Parameter(torch.ones(()))

    def forward(self, r):
        return self.gain * self.profile(r)


torch.manual_seed(0)
lens = Lens()
opt = torch.optim.SGD(lens.parameters(), 1e-2)
for step in range(60):
    r = torch.rand(32) * (1.5 if step < 40 else 6.0)  # later files reach further out
    loss = (lens(r) - torch.exp(-r)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", bool(lens.profile.scale.isnan()))
