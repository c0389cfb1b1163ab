"""A counter on the module is a constant to torch, which compiles the model anew each step."""

import os

import torch
from torch import nn

EXPECT = {"kind": "recompiled-often", "line": ("cause", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.seen = nn.Linear(4, 1), 0

    def forward(self, x):
        self.seen += 1  # HERE
        return self.fc(x) * min(1.0, self.seen / 100)


torch.manual_seed(20)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _step in range(14):
    x = torch.randn(8, 4)
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
