"""Gradients of two batches a step, and an evaluation under no_grad."""

import os

import torch
from torch import nn

EXPECT = {"kind": None, "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


torch.manual_seed(4)
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.Adam(net.parameters())
for _step in range(8):
    optimizer.zero_grad()
    for _ in range(2):
        x = torch.randn(8, 6)
        (run(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        run(torch.randn(8, 6))
