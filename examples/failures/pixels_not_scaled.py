"""Inputs from 0 to 255 go into a tanh as they are: its units are at their bounds."""

import torch
from torch import nn

EXPECT = {"kind": "saturated-units", "line": ("optimizer", "OPTIMIZER"), "module": "0", "ask": "levels"}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # OPTIMIZER

for step in range(120):
    x = torch.randint(256, (32, 16)).float()
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
