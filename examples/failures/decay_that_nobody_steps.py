"""A step decay is made beside the optimizer, and the loop never calls its step(): the rate stays at 0.5."""

import torch
from torch import nn

EXPECT = {"kind": "schedule-never-stepped", "line": ("cause", "DECAY")}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
decay = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)  # DECAY

for step in range(100):
    x = torch.randn(32, 16)
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
