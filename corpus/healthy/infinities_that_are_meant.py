"""A minimum over masked distances: infinities inside, none outside."""

import os

import torch
from torch import nn

EXPECT = {"kind": None, "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.points, self.out = nn.Parameter(torch.randn(5, 6)), nn.Linear(1, 1)

    def forward(self, x):
        distance = (x[:, None] - self.points[None]).square().sum(-1)
        far = distance.masked_fill(distance < 1e-3, float("inf"))
        return self.out(far.min(1, keepdim=True).values)


torch.manual_seed(2)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _step in range(12):
    x = torch.randn(8, 6)
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
