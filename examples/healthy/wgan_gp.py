"""Healthy: WGAN-GP, critic and generator alternate, gradient penalty with create_graph."""

import torch
from torch import nn

EXPECT = {"kind": None}


def penalty(D, real, fake):
    a = torch.rand(len(real), 1)
    x = (a * real + (1 - a) * fake).requires_grad_(True)
    (g,) = torch.autograd.grad(D(x).sum(), x, create_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
og, od = torch.optim.Adam(G.parameters(), 1e-3, (0, 0.9)), torch.optim.Adam(D.parameters(), 1e-3, (0, 0.9))
for i in range(8):
    for _ in range(3):
        real, fake = torch.randn(16, 2) + 3, G(torch.randn(16, 4)).detach()
        loss_d = D(fake).mean() - D(real).mean() + 10 * penalty(D, real, fake)
        od.zero_grad()
        loss_d.backward()
        od.step()
    for p in D.parameters():
        p.requires_grad_(False)
    loss_g = -D(G(torch.randn(16, 4))).mean()
    og.zero_grad()
    loss_g.backward()
    og.step()
    for p in D.parameters():
        p.requires_grad_(True)
print(loss_d.item(), loss_g.item())
