"""OneCycleLR is made for all batches of the run, and is stepped once per epoch: the rate stays where it begins."""

import torch
from torch import nn

EXPECT = {"kind": "schedule-too-slow", "line": ("cause", "CYCLE")}

torch.manual_seed(4)
net = nn.Sequential(nn.Linear(7, 28), nn.ReLU(), nn.Linear(28, 3))
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
batches = [torch.randn(32, 7) for _ in range(30)]
cycle = torch.optim.lr_scheduler.OneCycleLR(sgd, max_lr=0.4, total_steps=5 * len(batches))  # CYCLE

for epoch in range(5):
    for points in batches:
        loss = nn.functional.cross_entropy(net(points), points[:, :3].argmax(1))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    cycle.step()
