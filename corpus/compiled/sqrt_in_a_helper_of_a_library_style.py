"""A helper function in the compiled region takes the root of a difference."""

import os

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "dist",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


def safe_distance(a, b):
    squares = (a - b).square().sum(-1)
    return squares.sqrt()  # HERE


class Dist(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 2)

    def forward(self, a, b):
        return safe_distance(self.proj(a), self.proj(b))


class Triplet(nn.Module):
    def __init__(self):
        super().__init__()
        self.dist = Dist()

    def forward(self, anchor, near, far):
        return F.relu(self.dist(anchor, near) - self.dist(anchor, far) + 1.0).mean()


torch.manual_seed(10)
net = Triplet()
loss_of = torch.compile(net, backend=BACKEND, fullgraph=True)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(11):
    anchor, near, far = torch.randn(3, 6, 4)
    if step == 8:
        near[0] = anchor[0]
    loss = loss_of(anchor, near, far)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
