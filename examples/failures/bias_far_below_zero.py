"""The bias of a layer begins far below zero: its units give zero for every input, and have no gradient."""

import torch
from torch import nn

EXPECT = {"kind": "dead-units", "line": ("optimizer", "OPTIMIZER"), "module": "2", "ask": "levels"}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
nn.init.constant_(model[2].bias, -1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)  # OPTIMIZER

for step in range(120):
    x = torch.randn(32, 16)
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
