"""A WGAN with a gradient penalty, a critic frozen in the generator's step, and an averaged generator."""

import copy

import torch
from torch import nn

EXPECT = {
    "kind": None,
    "set": "twentyeighth",
    "written": "2026-11-29",
}



def draw_ink(count, g):
    """Drops of ink in eight places on a ring."""
    place = torch.randint(8, (count,), generator=g).float() * (2 * 3.14159265 / 8)
    centre = torch.stack([place.cos(), place.sin()], 1)
    return centre + 0.08 * torch.randn(count, 2, generator=g)


def mlp(inputs, outputs, width, act):
    return nn.Sequential(
        nn.Linear(inputs, width), act(), nn.Linear(width, width), act(), nn.Linear(width, outputs)
    )


class PaperMill:
    def __init__(self, noise=4, width=64, critic_rounds=3, penalty=1.0, decay=0.98):
        self.noise = noise
        self.critic_rounds = critic_rounds
        self.penalty = penalty
        self.decay = decay
        self.gen = mlp(noise, 2, width, nn.ReLU)
        self.critic = mlp(2, 1, width, nn.SiLU)
        self.shadow = copy.deepcopy(self.gen).requires_grad_(False)
        self.opt_g = torch.optim.Adam(self.gen.parameters(), lr=1e-3, betas=(0.0, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=2e-3, betas=(0.0, 0.9))

    def slope_penalty(self, real, fake):
        mix = torch.rand(len(real), 1)
        point = (mix * real + (1 - mix) * fake).requires_grad_(True)
        slope = torch.autograd.grad(self.critic(point).sum(), point, create_graph=True)[0]
        return ((slope.pow(2).sum(1) + 1e-12).sqrt() - 1).pow(2).mean()

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.gen(torch.randn(len(real), self.noise))
        gap = self.critic(fake).mean() - self.critic(real).mean()
        loss = gap + self.penalty * self.slope_penalty(real, fake)
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        return -gap.item()

    def generator_step(self, count):
        self.critic.requires_grad_(False)
        loss = -self.critic(self.gen(torch.randn(count, self.noise))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        self.critic.requires_grad_(True)
        with torch.no_grad():
            for slow, fast in zip(self.shadow.parameters(), self.gen.parameters()):
                slow.lerp_(fast, 1 - self.decay)

    @torch.no_grad()
    def sheet(self, count):
        return self.shadow(torch.randn(count, self.noise))


def quality(points):
    place = torch.arange(8).float() * (2 * 3.14159265 / 8)
    centres = torch.stack([place.cos(), place.sin()], 1)
    gap, nearest = torch.cdist(points, centres).min(1)
    share = torch.bincount(nearest[gap < 0.3], minlength=8) / len(points)
    return (gap < 0.3).float().mean().item(), (share > 0.03).sum().item()


def main():
    torch.manual_seed(21)
    g = torch.Generator().manual_seed(22)
    mill = PaperMill()
    for step in range(900):
        for _ in range(mill.critic_rounds):
            distance = mill.critic_step(draw_ink(128, g))
        mill.generator_step(128)
        if step % 150 == 149:
            near, found = quality(mill.sheet(1000))
            print(f"step {step + 1:4d}  distance {distance:.3f}  near a drop {near:.2f}  drops found {found}")


if __name__ == "__main__":
    main()
