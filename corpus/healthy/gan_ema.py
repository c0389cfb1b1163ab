"""GAN on a ring of Gaussians: alternating optimizers, several critic steps, lazy R1 penalty, EMA generator.

Source: https://github.com/AlexiaJM/Deep-learning-with-cats/issues/10 (one backward per term); EMA as discussed in
https://github.com/lucidrains/ema-pytorch/issues/25
"""
import copy
import math

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": "none", "set": "twelfth", "written": "2026-11-25"}


def mlp(i, o, h=64):
    return nn.Sequential(nn.Linear(i, h), nn.LeakyReLU(0.2), nn.Linear(h, h), nn.LeakyReLU(0.2), nn.Linear(h, o))


class EMA:
    def __init__(self, model, decay=0.99):
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(self.decay).add_(p, alpha=1 - self.decay)


def ring(n):
    k = torch.randint(0, 8, (n,)) * (2 * math.pi / 8)
    return torch.stack([k.cos(), k.sin()], 1) + 0.05 * torch.randn(n, 2)


class GAN:
    def __init__(self, z=8):
        self.z, self.G, self.D = z, mlp(z, 2), mlp(2, 1)
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=1e-3, betas=(0.0, 0.9))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=1e-3, betas=(0.0, 0.9))
        self.ema = EMA(self.G)

    def d_step(self, real, r1_weight):
        fake = self.G(torch.randn(len(real), self.z)).detach()
        self.opt_d.zero_grad(set_to_none=True)
        F.softplus(-self.D(real)).mean().backward()
        F.softplus(self.D(fake)).mean().backward()
        if r1_weight:
            real = real.clone().requires_grad_()
            g, = torch.autograd.grad(self.D(real).sum(), real, create_graph=True)
            (0.5 * r1_weight * g.square().sum(1).mean()).backward()
        self.opt_d.step()

    def g_step(self, n):
        loss = F.softplus(-self.D(self.G(torch.randn(n, self.z)))).mean()
        self.opt_g.zero_grad(set_to_none=True)
        loss.backward()
        self.opt_g.step()
        self.ema.update(self.G)
        return loss.item()


def coverage(samples):
    k = torch.arange(8) * (2 * math.pi / 8)
    d = torch.cdist(samples, torch.stack([k.cos(), k.sin()], 1))
    near, which = d.min(1)
    return len(which[near < 0.3].unique()), (near < 0.3).float().mean().item()


def main():
    torch.manual_seed(0)
    gan = GAN()
    for it in range(300):
        for k in range(2):
            gan.d_step(ring(128), r1_weight=0.4 if (2 * it + k) % 4 == 0 else 0.0)
        loss = gan.g_step(128)
        if it % 50 == 49:
            with torch.no_grad():
                modes, good = coverage(gan.ema.shadow(torch.randn(512, gan.z)))
            print(f"iter {it} g {loss:.3f} modes {modes} near {good:.2f}")


if __name__ == "__main__":
    main()
