"""A small Wasserstein GAN with gradient penalty that learns to make soil samples (moisture, acidity).

Report: https://github.com/igul222/improved_wgan_training/issues/18
"""
import math

import torch
from torch import nn

EXPECT = {
    "kind": "loss-term-without-graph",
    "line": ("cut", "HERE"),
    "plain": "the critic's slope grows far above 1, its losses explode and the generated samples do not match the real ones",
    "set": "twentysixth",
    "written": "2026-11-29",
}

NOISE, BATCH, STEPS, CRITIC_STEPS = 4, 128, 350, 3
WEIGHT = 1.0


def soil_batches(count, generator):
    while True:
        kind = torch.randint(0, 5, (count,), generator=generator).float()
        angle = 2 * math.pi * kind / 5
        center = torch.stack([1.5 * torch.cos(angle), 1.5 * torch.sin(angle)], 1)
        yield center + 0.15 * torch.randn(count, 2, generator=generator)


class Generator(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(NOISE, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, count):
        return self.net(torch.randn(count, NOISE))


class Critic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1))

    def forward(self, sample):
        return self.net(sample).squeeze(1)


def slope_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(between)
    slope = torch.autograd.grad(score.sum(), between)[0]  # HERE
    norm = slope.norm(dim=1)
    return ((norm - 1) ** 2).mean(), norm.mean().item()


def energy_distance(a, b):
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


def main():
    torch.manual_seed(3)
    data = soil_batches(BATCH, torch.Generator().manual_seed(8))
    generator, critic = Generator(), Critic()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=5e-4, betas=(0.5, 0.9))
    c_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    held_out = torch.cat([next(data) for _ in range(8)])

    for step in range(1, STEPS + 1):
        for _ in range(CRITIC_STEPS):
            real = next(data)
            with torch.no_grad():
                fake = generator(BATCH)
            penalty, slope = slope_penalty(critic, real, fake)
            c_loss = critic(fake).mean() - critic(real).mean() + WEIGHT * penalty
            c_optimizer.zero_grad()
            c_loss.backward()
            c_optimizer.step()
        g_loss = -critic(generator(BATCH)).mean()
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()
        if step % 50 == 0:
            with torch.no_grad():
                distance = energy_distance(generator(1024), held_out)
            print(f"step {step:4d}  critic {c_loss.item():10.3f}  generator {g_loss.item():10.3f}  slope {slope:9.3f}  distance {distance:.4f}")

    with torch.no_grad():
        print(f"final distance between made and real samples {energy_distance(generator(2000), held_out):.4f}")


if __name__ == "__main__":
    main()
