"""Healthy: a WGAN-GP with alternating optimizers and a critic that is frozen while the generator steps."""
import math

import torch
from torch import nn

EXPECT = {
    "kind": None,
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class Points:
    """Positions of ships at anchor: six crowded berths on a ring."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, n):
        k = torch.randint(0, 6, (n,), generator=self.gen).float()
        angle = k * math.pi / 3
        centre = 2 * torch.stack([angle.cos(), angle.sin()], 1)
        return centre + 0.1 * torch.randn(n, 2, generator=self.gen)


class Maker(nn.Module):
    def __init__(self, z=4, width=64):
        super().__init__()
        self.z = z
        self.net = nn.Sequential(nn.Linear(z, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, 2))

    def forward(self, n):
        return self.net(torch.randn(n, self.z))


def critic_net(width=64):
    return nn.Sequential(nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, width),
                         nn.LeakyReLU(0.2), nn.Linear(width, 1))


def slope_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_(True)
    slope, = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return (slope.norm(dim=1) - 1).pow(2).mean()


@torch.no_grad()
def report(maker, points):
    ring = torch.arange(6) * math.pi / 3
    centres = 2 * torch.stack([ring.cos(), ring.sin()], 1)
    d = torch.cdist(maker(1000), centres)
    near, which = d.min(1)
    share = torch.bincount(which[near < 0.5], minlength=6).float() / 1000
    return (near < 0.5).float().mean().item(), share.min().item()


def main():
    torch.manual_seed(16)
    points = Points(161)
    maker, critic = Maker(), critic_net()
    opt_m = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))

    for step in range(700):
        critic.requires_grad_(True)
        for _ in range(4):
            real = points.batch(128)
            with torch.no_grad():
                fake = maker(128)
            gap = critic(real).mean() - critic(fake).mean()
            loss_c = -gap + 2.0 * slope_penalty(critic, real, fake)
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()

        critic.requires_grad_(False)
        loss_m = -critic(maker(128)).mean()
        opt_m.zero_grad()
        loss_m.backward()
        opt_m.step()
        if step % 100 == 0 or step == 699:
            near, least = report(maker, points)
            print(f"step {step:4d}  gap {gap.item():.3f}  near a berth {near:.3f}  rarest berth {least:.3f}")


if __name__ == "__main__":
    main()
