"""The weights of one layer are multiplied by a little more than one in each step: decay with the wrong sign."""

import torch
from torch import nn

EXPECT = {"kind": "divergence-ahead", "line": ("optimizer", "OPTIMIZER"), "module": "0", "ask": "levels"}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # OPTIMIZER

for step in range(300):
    x = torch.randn(32, 16)
    loss = nn.functional.cross_entropy(model(x), torch.randint(4, (32,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model[0].weight.mul_(1.015)  # decay with the wrong sign
