"""Dropout sets what goes into a root to zero, sooner or later."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "body",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(4, 16), nn.Dropout(0.5)

    def forward(self, x):
        h = self.drop(self.fc(x).square())
        return torch.sqrt(h)  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = Body(), nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.body(x))


torch.manual_seed(19)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _step in range(6):
    loss = run(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
