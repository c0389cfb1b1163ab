"""Residual blocks whose branch is scaled up: without a normalisation the stream and its gradient grow by a factor."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "exploding-gradient",
    "line": ("cause", "HERE"),
    "module": "blocks",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Linear(16, 16), 12.0

    def forward(self, x):
        branch = nn.functional.gelu(self.inner(x))
        return x + branch * self.scale  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.Sequential(*(Block() for _ in range(12))), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.blocks(x))


torch.manual_seed(3)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-30)
for _step in range(5):
    loss = run(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
