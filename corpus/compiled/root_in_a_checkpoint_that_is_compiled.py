"""A checkpointed norm inside the compiled model meets a row of zeros."""

import os

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "block",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(6, 6, bias=False)

    def forward(self, x):
        hidden = self.mix(x)
        length = hidden.square().sum(1, keepdim=True).sqrt()  # HERE
        return hidden * length


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block, self.head = nn.Linear(4, 6, bias=False), Block(), nn.Linear(6, 1)

    def forward(self, x):
        return self.head(checkpoint(self.block, self.embed(x), use_reentrant=False))


torch.manual_seed(3)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(6):
    x = torch.randn(8, 4)
    if step == 4:
        x[2] = 0.0
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
