"""From step 100 on the targets come in another unit: grams, where the first files had kilograms."""

import torch
from torch import nn

EXPECT = {"kind": "loss-spike", "line": ("optimizer", "OPTIMIZER"), "ask": "levels"}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # OPTIMIZER

for step in range(140):
    x = torch.randn(32, 8)
    y = x.sum(1, keepdim=True)
    if step >= 100:
        y = 1000 * y
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
