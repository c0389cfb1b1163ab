"""Inputs are hardly centred: they are alike but for a little, and the decay takes all else of the first weight."""

import torch
from torch import nn

EXPECT = {"kind": "rank-collapse", "line": ("optimizer", "OPTIMIZER"), "module": "0", "ask": "levels"}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)  # OPTIMIZER

for step in range(130):
    x = 2 + 0.01 * torch.randn(32, 16)
    loss = nn.functional.cross_entropy(model(x), torch.randint(3, (32,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
