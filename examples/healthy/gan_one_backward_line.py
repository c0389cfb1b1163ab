"""Healthy: a GAN whose two halves share the line that calls backward."""

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": None}
torch.manual_seed(0)

G, D = (
    nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)),
    nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 1)),
)
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())


def update(opt, loss):
    opt.zero_grad()
    loss.backward()
    opt.step()


for i in range(60):
    fake = G(torch.randn(8, 2))
    update(od, F.softplus(D(fake.detach())).mean() + F.softplus(-D(torch.randn(8, 2))).mean())
    if i % 5 == 4:
        for p in D.parameters():
            p.requires_grad_(False)
        update(og, F.softplus(-D(fake)).mean())
        for p in D.parameters():
            p.requires_grad_(True)
