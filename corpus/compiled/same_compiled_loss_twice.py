"""The loss of a compiled model is run backward twice."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "second-backward",
    "line": ("failed", "HERE"),
    "says": ["once"],
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))

    def forward(self, x, y):
        return (self.layers(x) - y).square().mean()


torch.manual_seed(0)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.Adam(net.parameters())
for step in range(4):
    x = torch.randn(8, 4)
    loss = run(x, x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    if step == 2:
        loss.backward()  # HERE
    optimizer.step()
