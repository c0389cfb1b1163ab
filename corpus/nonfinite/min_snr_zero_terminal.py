"""Diffusion with min-SNR weights on a schedule rescaled to zero terminal SNR: the weight divides by the SNR, which is exactly zero in the very last timestep.

Report: https://github.com/kohya-ss/sd-scripts/pull/934 (min-snr-gamma divides by zero with zero terminal SNR; the same in TiankaiHang/Min-SNR-Diffusion-Training pull 4)
"""
import math

import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 119,
    "set": "seventh", "written": "2026-11-22",
}


def rescale_zero_terminal_snr(alphas_cumprod):
    root = alphas_cumprod.sqrt()
    first, last = root[0].clone(), root[-1].clone()
    root = (root - last) * first / (first - last)
    return root.square()


class NoiseScheduler:
    def __init__(self, steps=1000, zero_snr=True):
        betas = torch.linspace(math.sqrt(0.00085), math.sqrt(0.012), steps).square()
        self.alphas_cumprod = torch.cumprod(1 - betas, 0)
        if zero_snr:
            self.alphas_cumprod = rescale_zero_terminal_snr(self.alphas_cumprod)

    def add_noise(self, x, noise, t):
        a = self.alphas_cumprod[t][:, None]
        return a.sqrt() * x + (1 - a).sqrt() * noise

    def velocity(self, x, noise, t):
        a = self.alphas_cumprod[t][:, None]
        return a.sqrt() * noise - (1 - a).sqrt() * x

    def snr(self, t):
        a = self.alphas_cumprod[t]
        return a / (1 - a)


def apply_snr_weight(loss, t, scheduler, gamma=5.0):
    snr = scheduler.snr(t)
    weight = torch.minimum(snr, torch.full_like(snr, gamma)) / snr  # CULPRIT
    return loss * weight


class Denoiser(nn.Module):
    def __init__(self, dim=8, hidden=48):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(2, hidden), nn.SiLU())
        self.inner, self.outer = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x, t):
        phase = t[:, None] / 1000 * math.pi
        h = self.inner(x) + self.time(torch.cat([phase.sin(), phase.cos()], 1))
        return self.outer(nn.functional.silu(h))


def training_loss(model, scheduler, x, timesteps):
    noise = torch.randn_like(x)
    predicted = model(scheduler.add_noise(x, noise, timesteps), timesteps)
    loss = (predicted - scheduler.velocity(x, noise, timesteps)).square().mean(1)
    return apply_snr_weight(loss, timesteps, scheduler).mean()


torch.manual_seed(5)
model, scheduler = Denoiser(), NoiseScheduler()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
centres = torch.randn(5, 8)
for step in range(400):
    x = centres[torch.randint(0, 5, (6,))] + 0.1 * torch.randn(6, 8)
    loss = training_loss(model, scheduler, x, torch.randint(0, 1000, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(step, loss.item())
