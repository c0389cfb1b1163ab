"""Healthy: a part that is frozen after the warm-up."""

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": None}
torch.manual_seed(0)

net = nn.ModuleDict(dict(a=nn.Linear(4, 8), b=nn.Linear(8, 2)))
opt = torch.optim.AdamW(net.parameters())
for step in range(60):
    if step == 30:
        net["a"].requires_grad_(False)
    loss = F.cross_entropy(net["b"](torch.relu(net["a"](torch.randn(8, 4)))), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
