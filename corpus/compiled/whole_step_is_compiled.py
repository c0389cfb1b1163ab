"""Forward and loss in one compiled function; the log of a probability that is zero."""

import os

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


torch.manual_seed(18)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


@torch.compile(backend=BACKEND)
def loss_of(x, target):
    p = net(x).softmax(-1)
    return -torch.log(p.gather(1, target[:, None])).mean()  # HERE


optimizer = torch.optim.Adam(net.parameters())
for step in range(9):
    x, target = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    if step == 6:
        with torch.no_grad():
            net[2].bias.copy_(torch.tensor([300.0, 0.0, 0.0]))
    loss = loss_of(x, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
