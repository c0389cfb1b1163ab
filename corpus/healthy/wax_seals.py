"""A WGAN with a gradient penalty, a judge that is frozen in the generator's step, and an averaged generator."""

import math

import torch
import torch.nn as nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EXPECT = {
    "kind": None,
    "set": "twentyninth",
    "written": "2026-11-29",
}



def real_points(n, gen):
    """Wax dots pressed along two half moons."""
    t = torch.rand(n, generator=gen) * math.pi
    side = torch.rand(n, generator=gen) < 0.5
    x = torch.where(side, torch.cos(t), 1 - torch.cos(t))
    y = torch.where(side, torch.sin(t), 0.5 - torch.sin(t))
    pts = torch.stack([x - 0.5, y - 0.25], 1)
    return pts + 0.04 * torch.randn(n, 2, generator=gen)


class Press(nn.Module):
    def __init__(self, noise=4, width=64):
        super().__init__()
        self.noise = noise
        self.net = nn.Sequential(
            nn.Linear(noise, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(self, n):
        return self.net(torch.randn(n, self.noise))


class Judge(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
        )

    def forward(self, pts):
        return self.net(pts).squeeze(-1)


def slope_penalty(judge, real, fake):
    mix = torch.rand(len(real), 1)
    mid = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(judge(mid).sum(), mid, create_graph=True)
    return (slope.norm(dim=1) - 1).pow(2).mean()


@torch.no_grad()
def sliced_distance(a, b, lines=64):
    gen = torch.Generator().manual_seed(0)
    direction = torch.randn(2, lines, generator=gen)
    direction = direction / direction.norm(dim=0)
    return ((a @ direction).sort(0).values - (b @ direction).sort(0).values).abs().mean().item()


class Workshop:
    def __init__(self, batch=128, rounds=5):
        self.press, self.judge = Press(), Judge()
        self.smooth = AveragedModel(self.press, multi_avg_fn=get_ema_multi_avg_fn(0.98))
        self.opt_p = torch.optim.Adam(self.press.parameters(), lr=5e-4, betas=(0.5, 0.9))
        self.opt_j = torch.optim.Adam(self.judge.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.batch, self.rounds = batch, rounds
        self.gen = torch.Generator().manual_seed(4)

    def train_judge(self):
        for _ in range(self.rounds):
            real = real_points(self.batch, self.gen)
            with torch.no_grad():
                fake = self.press(self.batch)
            gap = self.judge(fake).mean() - self.judge(real).mean()
            loss = gap + 0.5 * slope_penalty(self.judge, real, fake)
            self.opt_j.zero_grad()
            loss.backward()
            self.opt_j.step()
        return -gap.item()

    def train_press(self):
        self.judge.requires_grad_(False)
        loss = -self.judge(self.press(self.batch)).mean()
        self.opt_p.zero_grad()
        loss.backward()
        self.opt_p.step()
        self.judge.requires_grad_(True)
        self.smooth.update_parameters(self.press)

    def run(self, steps):
        check = real_points(2000, torch.Generator().manual_seed(99))
        for step in range(1, steps + 1):
            gap = self.train_judge()
            self.train_press()
            if step % 60 == 0:
                with torch.no_grad():
                    made, smooth = self.press(2000), self.smooth(2000)
                print(
                    f"step {step} judged gap {gap:.3f} distance {sliced_distance(made, check):.3f} "
                    f"smoothed {sliced_distance(smooth, check):.3f}"
                )


if __name__ == "__main__":
    torch.manual_seed(4)
    Workshop().run(480)
