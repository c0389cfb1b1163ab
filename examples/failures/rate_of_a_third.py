"""The learning rate is some hundred times too high for Adam: each step moves the weights by a part of themselves."""

import torch
from torch import nn

EXPECT = {"kind": "update-too-large", "line": ("optimizer", "OPTIMIZER"), "module": "2", "ask": "levels"}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.3)  # OPTIMIZER

for step in range(90):
    x = torch.randn(32, 16)
    loss = nn.functional.cross_entropy(model(x), torch.randint(4, (32,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
