"""A scale that has shrunk to zero under a root, in a checkpointed block of the region."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "block",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


from torch.utils.checkpoint import checkpoint  # noqa: E402


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.variance = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.fc(x) * torch.sqrt(self.variance)  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.out = Block(), nn.Linear(4, 1)

    def forward(self, x):
        return self.out(checkpoint(self.block, x, use_reentrant=False))


torch.manual_seed(21)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(8):
    if step == 5:
        with torch.no_grad():
            net.block.variance[1] = 0.0
    loss = run(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
