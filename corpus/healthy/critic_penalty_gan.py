"""WGAN with gradient penalty on a ring of blobs; gradients are cleared by hand, micro-batches, spectral norm, weight EMA.

Source: https://github.com/Lightning-AI/pytorch-lightning/pull/4026 (manual optimisation with two optimizers) and
        https://github.com/LeiaLi/SRDiff/issues/15 (a zero_grad at an unusual place that is right)
Plain PyTorch 2.13: the generated points move to the ring.
"""
import math

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

EXPECT = {"class": "healthy", "kind": "none", "plain": {"outcome": "ok"}, "set": "thirteenth", "written": "2026-11-25"}


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.LeakyReLU(0.2, inplace=True), nn.Linear(64, 64), nn.LeakyReLU(0.2, inplace=True), nn.Linear(64, 2))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, count):
        return self.net(torch.randn(count, 4))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), spectral_norm(nn.Linear(64, 1)))

    def forward(self, x):
        return self.net(x).squeeze(1)


def ring(count):
    angle = torch.randint(8, (count,)) * (2 * math.pi / 8)
    return 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(count, 2)


def penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


def main():
    torch.manual_seed(0)
    generator, critic = Generator(), Critic()
    shadow = {n: p.detach().clone() for n, p in generator.named_parameters()}
    g_opt = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    c_opt = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for step in range(500):
        for _ in range(3):
            for _ in range(2):
                real = ring(32)
                with torch.no_grad():
                    fake = generator(32)
                loss = critic(fake).mean() - critic(real).mean() + penalty(critic, real, fake)
                (loss / 2).backward()
            c_opt.step()
            for p in critic.parameters():
                p.grad = None
        g_loss = -critic(generator(64)).mean()
        g_loss.backward()
        critic.zero_grad()
        g_opt.step()
        g_opt.zero_grad(set_to_none=False)
        with torch.no_grad():
            for n, p in generator.named_parameters():
                shadow[n].lerp_(p, 0.05)
        if step % 40 == 0:
            with torch.no_grad():
                radius = torch.func.functional_call(generator, shadow, (256,)).norm(dim=1)
            print(step, f"{loss.item():.4f}", f"{g_loss.item():.4f}", f"radius {radius.mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
