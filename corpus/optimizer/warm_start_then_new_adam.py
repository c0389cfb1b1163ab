"""Forecasting a tide: one Adam learns for three hundred steps; then new hours arrive one by one, and each makes a new Adam for three updates."""
import math

import torch
from torch import nn

EXPECT = {
    "class": "optimizer-made-anew", "framework": "plain", "kind": "optimizer-made-anew", "line": ("optimizer", "ANEW"),
    "late": True, "set": "ledger", "written": "2026-11-27",
}


def tide(hours):
    return torch.sin(hours * 2 * math.pi / 12.4) + 0.3 * torch.sin(hours * 2 * math.pi / 24)


def features(hours):
    return torch.stack([torch.sin(hours * w) for w in (0.2, 0.5, 0.9)] + [torch.cos(hours * w) for w in (0.2, 0.5, 0.9)], 1)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 40), nn.GELU(), nn.Linear(40, 1))
past = torch.rand(400) * 200
first = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(300):
    pick = torch.randint(0, 400, (32,))
    error = (model(features(past[pick]))[:, 0] - tide(past[pick])).square().mean()
    first.zero_grad()
    error.backward()
    first.step()
print("learned", error.item())
for hour in range(200, 260):
    recent = torch.arange(hour - 8, hour, dtype=torch.float32)
    follow = torch.optim.Adam(model.parameters(), lr=3e-3)  # ANEW
    for _ in range(3):
        error = (model(features(recent))[:, 0] - tide(recent)).square().mean()
        follow.zero_grad()
        error.backward()
        follow.step()
print("followed", error.item())
