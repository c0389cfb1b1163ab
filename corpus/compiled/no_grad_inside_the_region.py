"""A block runs under no_grad inside the compiled model."""

import os

import torch
from torch import nn

EXPECT = {"op": "linear", "kind": "none-grad", "line": ("cut", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        h = self.stem(x).relu()
        with torch.no_grad():
            more = self.block(h).tanh()  # HERE
        return self.head(h + more)


torch.manual_seed(14)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _step in range(6):
    x = torch.randn(8, 4)
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
