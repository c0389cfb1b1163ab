"""The optimizer is made anew after its schedule: the schedule goes on changing the rate of the old one."""

import torch
from torch import nn

EXPECT = {"kind": "schedule-of-unused-optimizer", "line": ("cause", "DECAY")}

torch.manual_seed(2)
net = nn.Sequential(nn.Linear(9, 36), nn.GELU(), nn.Linear(36, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)  # DECAY
optimizer = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.05)

for step in range(70):
    points = torch.randn(48, 9)
    loss = (net(points)[:, 0] - points[:, 0] * points[:, 1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    decay.step()
