"""A compiled model writes into what exp had saved: torch refuses to compile it."""

import os

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        hidden = self.up(x).exp()
        hidden += 1  # HERE
        return self.down(hidden.log1p())


torch.manual_seed(0)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for _step in range(6):
    x = torch.randn(8, 4)
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
