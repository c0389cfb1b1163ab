"""A learning rate whose exponent is mistyped: 1e-8 for 1e-3."""

import torch
from torch import nn

EXPECT = {"kind": "update-too-small", "line": ("optimizer", "OPTIMIZER")}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-8)  # OPTIMIZER

for step in range(200):
    x = torch.randn(32, 16)
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
