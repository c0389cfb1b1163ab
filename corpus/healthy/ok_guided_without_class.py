"""Healthy: diffusion of two-dimensional shapes under bfloat16 autocast with guidance and self-conditioning; a first estimate is made without gradients inside the same autocast, the embedding of "no class" takes part only when a class was dropped, the last layer begins with zeros.

Report it resembles: https://github.com/pytorch/pytorch/issues/112583 (no_grad nested in autocast lost part of the graph through the cache of casts, in earlier versions)
"""
import copy
import math

import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "tenth", "written": "2026-11-23"}


class Denoiser(nn.Module):
    def __init__(self, classes=3, width=64):
        super().__init__()
        self.label, self.no_label = nn.Embedding(classes, width), nn.Parameter(0.02 * torch.randn(width))
        self.time = nn.Linear(8, width)
        self.inlet, self.hidden, self.out = nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t, label, estimate=None, dropped=None):
        estimate = torch.zeros_like(x) if estimate is None else estimate
        condition = self.label(label)
        if dropped is not None and dropped.any():
            condition = torch.where(dropped[:, None], self.no_label, condition)
        angle = t[:, None] * math.pi * 2.0 ** torch.arange(4)
        h = self.inlet(torch.cat([x, estimate], 1)) + self.time(torch.cat([angle.sin(), angle.cos()], 1)) + condition
        h = torch.nn.functional.silu(h)
        return self.out(h + torch.nn.functional.silu(self.hidden(h)))


def shapes(n):
    label, u = torch.randint(0, 3, (n,)), 2 * torch.rand(n) - 1
    ring = torch.stack([(math.pi * u).cos(), (math.pi * u).sin()], 1)
    return torch.stack([ring, torch.stack([u, u], 1), torch.stack([u, -u], 1)])[label, torch.arange(n)], label


@torch.no_grad()
def follow(average, model, decay=0.99):
    for a, p in zip(average.parameters(), model.parameters()):
        a.lerp_(p, 1 - decay)


torch.manual_seed(0)
model = Denoiser()
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(120):
    x, label = shapes(32)
    t, noise = torch.rand(32), torch.randn(32, 2)
    noisy = (math.pi / 2 * t).cos()[:, None] * x + (math.pi / 2 * t).sin()[:, None] * noise
    dropped, estimate = torch.rand(32) < 0.05, None
    with torch.autocast("cpu", torch.bfloat16):
        if step % 2:
            with torch.no_grad():
                estimate = model(noisy, t, label).float()
        predicted = model(noisy, t, label, estimate, dropped)
        loss = (predicted.float() - noise).square().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    follow(average, model)
    if step % 20 == 0:
        print(step, loss.item())
