"""The distance of an atom to itself is zero, and the root has no derivative there."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "pair",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.charge = nn.Linear(3, 3)

    def forward(self, x):
        moved = self.charge(x)
        away = moved[:, None] - moved[None]
        distance = away.square().sum(-1).sqrt()  # HERE
        return torch.where(distance > 0.5, distance, torch.zeros_like(distance)).sum()


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair = Pair()

    def forward(self, x):
        return (away_from_itself(self.pair, x)).square()


def away_from_itself(pair, x):
    return pair(x)


torch.manual_seed(0)
model = Energy()
run = torch.compile(model, backend=BACKEND)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(12):
    x = torch.randn(5, 3)
    if step == 6:
        x[1] = x[0]
    loss = run(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
