"""Healthy: a GAN of 1,500 steps with an average of the generator; from step 870 on noise is added to both inputs, from step 1,240 on the discriminator steps twice."""
import copy

import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "late", "written": "2026-11-22"}

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2), nn.Tanh())
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
averaged = copy.deepcopy(G).requires_grad_(False)
g_opt = torch.optim.Adam(G.parameters(), 1e-3, betas=(0.5, 0.99))
d_opt = torch.optim.Adam(D.parameters(), 1e-3, betas=(0.5, 0.99))


def data(n):
    x = 1.6 * torch.rand(n, 1) - 0.8
    return torch.cat([x, x.square() - 0.3], 1)


def noisy(x, step):
    return x + 0.05 * torch.randn_like(x) if step >= 870 else x


def set_trainable(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


for step in range(1500):
    set_trainable(D, True)
    fake = G(torch.randn(16, 4))
    for _ in range(1 if step < 1240 else 2):
        d_loss = nn.functional.softplus(-D(noisy(data(16), step))).mean()
        d_loss = d_loss + nn.functional.softplus(D(noisy(fake.detach(), step))).mean()
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
    set_trainable(D, False)
    g_loss = nn.functional.softplus(-D(noisy(fake, step))).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    with torch.no_grad():
        for mean, p in zip(averaged.parameters(), G.parameters()):
            mean.lerp_(p, 0.01)
    if step % 100 == 0:
        with torch.no_grad():
            sample = averaged(torch.randn(100, 4))
        print(step, round(d_loss.item(), 3), round(g_loss.item(), 3), sample.std(0).tolist())
