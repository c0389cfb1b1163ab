"""The batch is written into one buffer, and the compiled model's backward needs the batch of before."""

import os

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x)


torch.manual_seed(0)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
buffer = torch.zeros(8, 4)
for _step in range(3):
    loss = 0.0
    for _part in range(2):
        buffer.copy_(torch.randn(8, 4))  # HERE
        loss = loss + run(buffer).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
