"""Squares of bfloat16's smaller brother overflow inside the region."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "module": "norm",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class RootMeanSquare(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        x = x.to(torch.float16)
        mean = x.square().mean(-1, keepdim=True)  # HERE
        return (x - mean).float() * self.weight


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.out = nn.Linear(4, 8), RootMeanSquare(8), nn.Linear(8, 1)

    def forward(self, x):
        h = self.up(x)
        return self.out(h + self.norm(h)).mean() + (self.norm(h) / self.norm(h).sum()).sum()


torch.manual_seed(12)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
for step in range(10):
    x = torch.randn(4, 4)
    if step == 6:
        x[0] = 2000.0
    loss = run(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
