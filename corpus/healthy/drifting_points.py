"""A one-step generator of points in the plane, trained by letting its samples drift towards the data.

What looks suspicious: the loss is the same number from the first step to the last (see https://github.com/lambertae/drifting/issues/3).
It is right: the goal of each step is the sample itself plus a drift of unit mean size, held fixed, so the value says nothing; the
gradient does, and the distance between samples and data falls while the learning rate is lowered to nothing.
"""
import math
import torch
from torch import nn

EXPECT = {
    "kind": None,
    "set": "twentythird",
    "written": "2026-11-28",
}


def data_points(n, gen):
    """Five arms of a pinwheel."""
    arm = torch.randint(0, 5, (n,), generator=gen).float()
    radius = 0.4 + 1.4 * torch.rand(n, generator=gen)
    angle = arm * 2 * math.pi / 5 + 0.5 * radius + 0.08 * torch.randn(n, generator=gen)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


class Generator(nn.Module):
    def __init__(self, noise=8, width=128):
        super().__init__()
        self.noise = noise
        self.net = nn.Sequential(nn.Linear(noise, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
                                 nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, n, gen):
        return self.net(torch.randn(n, self.noise, generator=gen))


@torch.no_grad()
def drift(x, real, temperatures=(0.05, 0.2, 0.6)):
    """Mean shift to the real points less mean shift to the other samples, over some widths of the kernel."""
    total = torch.zeros_like(x)
    for temperature in temperatures:
        to_real = torch.softmax(-torch.cdist(x, real) / temperature, dim=1)
        apart = torch.cdist(x, x)
        apart.fill_diagonal_(1e6)
        to_fake = torch.softmax(-apart / temperature, dim=1)
        total += to_real @ real - to_fake @ x
    return total / total.pow(2).sum(dim=1).mean().sqrt().clamp(min=1e-8)


@torch.no_grad()
def sliced_distance(model, n=2000, seed=99):
    gen = torch.Generator().manual_seed(seed)
    fake, real = model(n, gen), data_points(n, gen)
    angle = torch.linspace(0, math.pi, 33)[:-1]
    axes = torch.stack([angle.cos(), angle.sin()])
    return ((fake @ axes).sort(dim=0).values - (real @ axes).sort(dim=0).values).abs().mean().item()


def train(model, steps=1500, batch=256, step_size=0.1):
    gen = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    for step in range(steps):
        x = model(batch, gen)
        goal = x.detach() + step_size * drift(x, data_points(batch, gen))
        loss = (x - goal).pow(2).sum(dim=1).mean() / step_size ** 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 150 == 0 or step == steps - 1:
            print(f"step {step:4d}  loss {loss.item():.5f}  sliced distance {sliced_distance(model):.4f}")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Generator()
    print(f"untrained: sliced distance {sliced_distance(model):.4f}")
    train(model)


if __name__ == "__main__":
    main()
