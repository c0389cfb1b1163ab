"""Class weights by inverse frequency of the batch: from step 40 on a batch has no sample of the rare class."""

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT")}


def batch(step):
    x = torch.randn(32, 8)
    y = torch.randint(0, 3, (32,))
    if step == 40:
        y = y.clamp(max=1)
    return x, y


def class_weights(y):
    counts = torch.bincount(y, minlength=3).float()
    w = counts.sum() / counts  # CULPRIT
    return w / w.sum()


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
opt = torch.optim.Adam(net.parameters())
for step in range(60):
    x, y = batch(step)
    loss = F.cross_entropy(net(x), y, weight=class_weights(y))
    opt.zero_grad()
    loss.backward()
    opt.step()
