"""A cosine over 6 epochs is stepped after each batch: the rate falls and rises again, and ends anywhere."""

import torch
from torch import nn

EXPECT = {"kind": "schedule-turns-back", "line": ("cause", "COSINE")}

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 4))
num_epochs = 6
sgd = torch.optim.SGD(net.parameters(), lr=0.4, momentum=0.9)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, T_max=num_epochs)  # COSINE

for epoch in range(num_epochs):
    for batch in range(18):
        points = torch.randn(24, 12)
        loss = nn.functional.cross_entropy(net(points), points[:, 4:8].argmax(1))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        cosine.step()
