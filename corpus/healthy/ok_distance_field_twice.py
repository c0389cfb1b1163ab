"""Healthy: a signed distance field with an eikonal term; the gradient by the points goes through a second backward, its length has a floor under the root, the points' own gradients are thrown away.

Report it resembles: https://github.com/ashawkey/torch-ngp/issues/16 (an eikonal loss on autograd.grad with create_graph fails for encodings that cannot be differentiated twice)
"""
import math

import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "eighth", "written": "2026-11-22"}


class Fourier(nn.Module):
    def __init__(self, levels=2):
        super().__init__()
        self.register_buffer("rates", 2.0 ** torch.arange(levels) * math.pi / 2)

    def forward(self, x):
        angles = x[..., None] * self.rates
        return torch.cat([x, angles.sin().flatten(1), angles.cos().flatten(1)], 1)


class Field(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.encode = Fourier()
        self.layers = nn.ModuleList([nn.Linear(10, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden + 10, hidden)])
        self.out = nn.Linear(hidden, 1)
        self.act = nn.Softplus(beta=20)

    def forward(self, x):
        code = self.encode(x)
        h = self.act(self.layers[0](code))
        h = self.act(self.layers[1](h))
        h = self.act(self.layers[2](torch.cat([h, code], 1)))
        return self.out(h).squeeze(1)

    def slope(self, x):
        x = x.clone().requires_grad_()
        value = self(x)
        (gradient,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        return value, gradient


def true_distance(x):
    return torch.minimum((x - 0.3).norm(dim=1) - 0.35, (x + 0.4).norm(dim=1) - 0.25)


torch.manual_seed(0)
field = Field()
optimizer = torch.optim.Adam(field.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
for step in range(200):
    points = 2 * torch.rand(127, 2) - 1
    value, gradient = field.slope(points)
    length = (gradient.square().sum(1) + 1e-8).sqrt()
    data, eikonal = (value - true_distance(points)).abs().mean(), (length - 1).square().mean()
    loss = data + (0.05 if step >= 60 else 0.01) * eikonal
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 25 == 0:
        print(step, data.item(), eikonal.item())
