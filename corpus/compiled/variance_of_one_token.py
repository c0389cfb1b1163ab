"""The unbiased deviation of a group of one element is 0/0."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "module": "scale",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, h):
        spread = h.std(dim=1, keepdim=True)  # HERE
        return self.gain * (h - h.mean(1, keepdim=True)) / (spread + 1e-5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.scale, self.out = nn.Linear(2, 6), Scale(), nn.Linear(6, 1)

    def forward(self, x):
        return self.out(self.scale(self.embed(x))).mean()


torch.manual_seed(4)
net = Net()
run = torch.compile(net, backend=BACKEND, dynamic=True)
optimizer = torch.optim.Adam(net.parameters())
for step in range(10):
    length = 1 if step == 6 else 3 + step % 3
    loss = run(torch.randn(4, length, 2)).square()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
