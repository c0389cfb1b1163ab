"""A checkpointed block is compiled with the rest, and drops the gradient of what it is given."""

import os

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": "none-grad", "line": ("cut", "HERE"), "op": "detach", "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.mix = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        gate = torch.sigmoid(self.scale(x)).detach()  # HERE
        return self.mix(x * gate).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block, self.head = nn.Linear(4, 6), Block(), nn.Linear(6, 1)

    def forward(self, x):
        return self.head(checkpoint(self.block, self.embed(x), use_reentrant=False))


torch.manual_seed(3)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.Adam(net.parameters())
for _step in range(5):
    x = torch.randn(8, 4)
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
