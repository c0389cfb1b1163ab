"""A recurrence over sixty steps of time, all in one region: its weight makes the gradient grow with each of them."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "exploding-gradient",
    "line": ("cause", "HERE"),
    "module": "cell.back",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.drive, self.back = nn.Linear(2, 12), nn.Linear(12, 12, bias=False)
        nn.init.orthogonal_(self.back.weight, gain=1.4)

    def forward(self, frame, state):
        return self.drive(frame) + self.back(state)  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = Cell(), nn.Linear(12, 1)

    def forward(self, x):
        state = x.new_zeros(x.shape[1], 12)
        for frame in x:
            state = self.cell(frame, state)
        return self.out(state)


torch.manual_seed(2)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-30)
for _step in range(5):
    x = torch.randn(60, 4, 2)
    loss = (run(x) - x.sum(0)[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
