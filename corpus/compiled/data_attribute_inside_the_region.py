"""An exponential of .data: what goes through it has no gradient."""

import os

import torch
from torch import nn

EXPECT = {"op": "data", "kind": "none-grad", "line": ("cut", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(3, 3)
        self.out = nn.Linear(3, 1)

    def forward(self, x):
        scale = torch.exp(self.scale(x).data)  # HERE
        return self.out(x * scale)


torch.manual_seed(17)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _step in range(6):
    x = torch.randn(8, 3)
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
