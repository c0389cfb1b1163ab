"""The optimizer steps between the forward of a compiled model and its second half's backward."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "inplace",
    "line": ("mutated", "HERE"),
    "says": ["before the step"],
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


torch.manual_seed(0)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _step in range(4):
    first, second = run(torch.randn(8, 4)).square().mean(), run(torch.randn(8, 4)).abs().mean()
    optimizer.zero_grad()
    first.backward()
    optimizer.step()  # HERE
    second.backward()
