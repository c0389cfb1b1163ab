"""Two losses share a compiled trunk, and the first backward keeps the graph from the first step on."""

import os

import torch
from torch import nn

EXPECT = {"kind": None, "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.mid = nn.Linear(4, 16), nn.Linear(16, 16)

    def forward(self, x):
        return self.mid(torch.tanh(self.up(x)).square()).relu()


torch.manual_seed(0)
net, left, right = Trunk(), nn.Linear(16, 1), nn.Linear(16, 1)
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD([*net.parameters(), *left.parameters(), *right.parameters()], lr=0.01)
for _step in range(5):
    features = run(torch.randn(8, 4))
    optimizer.zero_grad()
    left(features).square().mean().backward(retain_graph=True)
    (right(features) - 1).square().mean().backward()
    optimizer.step()
