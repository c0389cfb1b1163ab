"""DDPM on 2-D data with a guard that skips outlier batches, compared with a running mean of the loss.

Source: https://github.com/alexhernandezgarcia/gflownet/pull/133 (also https://github.com/pytorch/pytorch/issues/20275)
"""
import math

import torch
from torch import nn

EXPECT = {
    "class": "f", "kind": "graph-retained", "holding_marker": "HOLDS", "holder": "guard.mean", "step": 120,
    "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class Denoiser(nn.Module):
    def __init__(self, width=64, t_dim=16):
        super().__init__()
        self.register_buffer("freq", torch.exp(-torch.arange(t_dim // 2) * math.log(1e4) / (t_dim // 2)))
        self.inp, self.emb = nn.Linear(2, width), nn.Linear(t_dim, width)
        self.mid, self.out = nn.Linear(width, width), nn.Linear(width, 2)
        self.act = nn.SiLU()

    def forward(self, x, t):
        ang = t[:, None] * self.freq
        h = self.act(self.inp(x) + self.emb(torch.cat([ang.sin(), ang.cos()], 1)))
        return self.out(self.act(self.mid(h)))


class Diffusion:
    def __init__(self, T=100):
        self.T = T
        self.abar = torch.cumprod(1 - torch.linspace(1e-4, 0.05, T), 0)

    def loss(self, model, x0):
        t = torch.randint(0, self.T, (len(x0),))
        a = self.abar[t].unsqueeze(1)
        eps = torch.randn_like(x0)
        return (model(a.sqrt() * x0 + (1 - a).sqrt() * eps, t.float()) - eps).square().mean()


class SpikeGuard:
    def __init__(self, warmup, decay=0.98, factor=4.0):
        self.warmup, self.decay, self.factor = warmup, decay, factor
        self.mean, self.skipped = None, 0

    def accept(self, step, loss):
        if step < self.warmup:
            return True
        if self.mean is None:
            self.mean = torch.ones(())
        if loss > self.factor * self.mean:
            self.skipped += 1
            return False
        self.mean = self.decay * self.mean + (1 - self.decay) * loss  # HOLDS
        return True


def moons(n):
    th = torch.rand(n) * math.pi
    side = (torch.rand(n) < 0.5).float()
    x = torch.stack([th.cos() * (1 - 2 * side) + side, th.sin() * (1 - 2 * side) + 0.5 * side], 1)
    return x + 0.05 * torch.randn(n, 2)


def main():
    torch.manual_seed(0)
    model, diffusion, guard = Denoiser(), Diffusion(), SpikeGuard(warmup=120)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(360):
        loss = diffusion.loss(model, moons(128))
        if not guard.accept(step, loss):
            continue
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 60 == 0:
            mean = float("nan") if guard.mean is None else guard.mean.item()
            print(f"step {step} loss {loss.item():.3f} running {mean:.3f} skipped {guard.skipped}")


if __name__ == "__main__":
    main()
