"""Healthy: WGAN-GP on scikit-learn's digits. The critic is trained five times for each update of the generator.

A difference of means does not depend on the last bias: its gradient is exactly zero, as it should be."""

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": None}

torch.manual_seed(0)
digits = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
G = nn.Sequential(
    nn.Linear(16, 128),
    nn.ReLU(),
    nn.Unflatten(1, (32, 2, 2)),
    nn.ConvTranspose2d(32, 16, 4, 2, 1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.ConvTranspose2d(16, 1, 4, 2, 1),
    nn.Tanh(),
)
D = nn.Sequential(
    nn.Conv2d(1, 16, 3, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(16, 32, 3, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Flatten(),
    nn.Linear(128, 1),
)
og = torch.optim.Adam(G.parameters(), 1e-4, (0.0, 0.9))
od = torch.optim.Adam(D.parameters(), 1e-4, (0.0, 0.9))


def gradient_penalty(real, fake):
    mix = torch.rand(len(real), 1, 1, 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = D(x)
    (g,) = torch.autograd.grad(score, x, torch.ones_like(score), create_graph=True)
    return ((g.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


for i in range(6):
    for _ in range(5):
        real = digits[torch.randint(len(digits), (32,))]
        with torch.no_grad():
            fake = G(torch.randn(32, 16))
        score = D(torch.cat([fake, real]))
        loss_d = score[:32].mean() - score[32:].mean() + 10 * gradient_penalty(real, fake)
        od.zero_grad()
        loss_d.backward()
        od.step()
    for p in D.parameters():
        p.requires_grad_(False)
    loss_g = -D(G(torch.randn(32, 16))).mean()
    og.zero_grad()
    loss_g.backward()
    og.step()
    for p in D.parameters():
        p.requires_grad_(True)
print(loss_d.item(), loss_g.item())
