"""Healthy: a GAN that switches requires_grad of the discriminator for the generator's turn.

Report it resembles: https://github.com/junyanz/pytorch-CycleGAN-and-pix2pix/issues/594
"""
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "first", "written": "2026-11-22"}

torch.manual_seed(0)
G, D = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2)), nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g, opt_d = torch.optim.Adam(G.parameters(), 1e-3, betas=(0.5, 0.9)), torch.optim.Adam(D.parameters(), 1e-3, betas=(0.5, 0.9))
for step in range(60):
    real, fake = torch.randn(16, 2) + 1, G(torch.randn(16, 4))
    D.requires_grad_(False)
    opt_g.zero_grad()
    F.softplus(-D(fake)).mean().backward()
    opt_g.step()
    D.requires_grad_(True)
    opt_d.zero_grad()
    (F.softplus(D(fake.detach())).mean() + F.softplus(-D(real)).mean()).backward()
    opt_d.step()
