"""CycleGAN between clouds of points of two shapes: one optimizer for both generators over a chain of their parameters, in which the same generator was written twice; the way back is never trained.

Report: https://github.com/eriklindernoren/PyTorch-GAN/issues/108 (one optimizer over itertools.chain of the parameters of G_AB and G_BA, and what each of them gets)
"""
import itertools
import math
import warnings

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "set": "tenth", "written": "2026-11-23",
}
warnings.simplefilter("ignore")


def mlp(inputs, outputs, width=48):
    return nn.Sequential(nn.Linear(inputs, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, outputs))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = mlp(2, 2)

    def forward(self, x):
        return x + self.shift(x)


def ring(n):
    angle = 2 * math.pi * torch.rand(n)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def cross(n):
    along = 3 * torch.rand(n) - 1.5
    flat = torch.rand(n) < 0.5
    point = torch.stack([along, torch.zeros(n)], 1)
    return torch.where(flat[:, None], point, point.flip(1)) + 0.05 * torch.randn(n, 2)


def hinge_d(D, real, fake):
    return F.relu(1 - D(real)).mean() + F.relu(1 + D(fake.detach())).mean()


torch.manual_seed(0)
G_AB, G_BA, D_A, D_B = Generator(), Generator(), mlp(2, 1), mlp(2, 1)
optimizer_G = torch.optim.Adam(itertools.chain(G_AB.parameters(), G_AB.parameters()), lr=1e-3, betas=(0.5, 0.9))  # OPTIMIZER
optimizer_D = torch.optim.Adam(itertools.chain(D_A.parameters(), D_B.parameters()), lr=1e-3, betas=(0.5, 0.9))
for step in range(120):
    a, b = ring(128), cross(128)
    fake_b, fake_a = G_AB(a), G_BA(b)
    adversarial = -D_B(fake_b).mean() - D_A(fake_a).mean()
    cycle = (G_BA(fake_b) - a).abs().mean() + (G_AB(fake_a) - b).abs().mean()
    loss_G = adversarial + 5 * cycle
    optimizer_G.zero_grad()
    loss_G.backward()
    optimizer_G.step()

    loss_D = hinge_d(D_A, a, fake_a) + hinge_d(D_B, b, fake_b)
    optimizer_D.zero_grad()
    loss_D.backward()
    optimizer_D.step()
    if step % 20 == 0:
        print(step, loss_D.item(), cycle.item())
