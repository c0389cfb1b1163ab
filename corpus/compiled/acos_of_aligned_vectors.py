"""The angle of two vectors that are the same."""

import os

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "angle",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Angle(nn.Module):
    def forward(self, a, b):
        cosine = (F.normalize(a, dim=-1) * F.normalize(b, dim=-1)).sum(-1).clamp(-1.0, 1.0)
        return torch.acos(cosine)  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn, self.angle = nn.Linear(3, 3, bias=False), Angle()

    def forward(self, x, y):
        return self.angle(self.turn(x), y).mean()


torch.manual_seed(7)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(8):
    x, y = torch.randn(6, 3), torch.randn(6, 3)
    if step == 3:
        with torch.no_grad():
            net.turn.weight.copy_(torch.eye(3))
        x = torch.eye(3)
        y = torch.eye(3)
        x = torch.cat([x, x])
        y = torch.cat([y, y])
    loss = run(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
