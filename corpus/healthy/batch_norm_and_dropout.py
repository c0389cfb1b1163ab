"""A plain network with state and randomness."""

import os

import torch
from torch import nn

EXPECT = {"kind": None, "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _step in range(12):
    x = torch.randn(8, 6)
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
