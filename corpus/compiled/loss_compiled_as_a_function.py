"""Only the loss is compiled: the power of a zero has no finite derivative."""

import os

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-backward", "line": ("cause", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


@torch.compile(backend=BACKEND)
def charbonnier(pred, target):
    off = (pred - target).abs()
    return off.pow(0.45).mean()  # HERE


torch.manual_seed(6)
net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(10):
    x = torch.randn(8, 4)
    target = torch.randn(8, 4)
    pred = net(x)
    if step == 5:
        target[2] = pred[2].detach()
    loss = charbonnier(pred, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
