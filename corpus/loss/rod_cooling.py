"""Temperature in a cooling rod by a physics-informed network: u_t = a u_xx, ends at zero, a known profile at the start.

After https://github.com/lululxvi/deepxde/issues/80 (a PDE that would not converge).
"""
import math
import torch
from torch import nn

EXPECT = {
    "kind": "second-derivative-zero",
    "line": ("cause", "RELU"),
    "plain": "the loss goes down and levels off, the error against the exact solution stays large",
    "set": "twentythird",
    "written": "2026-11-28",
}

DIFFUSIVITY = 0.1


def exact(x, t):
    slow = torch.exp(-DIFFUSIVITY * math.pi ** 2 * t) * torch.sin(math.pi * x)
    fast = 0.5 * torch.exp(-DIFFUSIVITY * 9 * math.pi ** 2 * t) * torch.sin(3 * math.pi * x)
    return slow + fast


class Field(nn.Module):
    def __init__(self, width=48, depth=4):
        super().__init__()
        sizes = [2] + [width] * depth
        layers = []
        for a, b in zip(sizes[:-1], sizes[1:]):
            layers += [nn.Linear(a, b), nn.ReLU()]
        layers.append(nn.Linear(width, 1))
        self.body = nn.Sequential(*layers)
        for m in self.body:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, x, t):
        return self.body(torch.cat([2 * x - 1, 2 * t - 1], dim=1))  # RELU


def residual(model, x, t):
    x.requires_grad_(True)
    t.requires_grad_(True)
    u = model(x, t)
    ones = torch.ones_like(u)
    u_t, u_x = torch.autograd.grad(u, (t, x), ones, create_graph=True)
    u_xx = torch.autograd.grad(u_x, x, ones, create_graph=True)[0]
    return u_t - DIFFUSIVITY * u_xx


class Points:
    """Fresh points for every step: inside, at the start, at the two ends."""

    def __init__(self, inside=400, edge=100, seed=0):
        self.inside, self.edge = inside, edge
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self):
        rand = lambda n: torch.rand(n, 1, generator=self.gen)
        start_x = rand(self.edge)
        end_t = rand(self.edge)
        end_x = (rand(self.edge) > 0.5).float()
        return (rand(self.inside), rand(self.inside)), (start_x, torch.zeros_like(start_x)), (end_x, end_t)


@torch.no_grad()
def relative_error(model):
    grid = torch.linspace(0, 1, 61)
    x, t = torch.meshgrid(grid, grid, indexing="ij")
    x, t = x.reshape(-1, 1), t.reshape(-1, 1)
    truth = exact(x, t)
    return ((model(x, t) - truth).norm() / truth.norm()).item()


def train(model, steps=2200):
    points = Points()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)
    for step in range(steps):
        inside, start, ends = points()
        physics = residual(model, *inside).pow(2).mean()
        initial = (model(*start) - exact(*start)).pow(2).mean()
        border = model(*ends).pow(2).mean()
        loss = physics + 10 * initial + 10 * border
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == steps - 1:
            print(f"step {step:4d}  loss {loss.item():.5f}  physics {physics.item():.5f}  start {initial.item():.5f}  "
                  f"ends {border.item():.5f}  relative error {relative_error(model):.3f}")


def main():
    torch.manual_seed(8)
    torch.set_num_threads(1)
    model = Field()
    train(model)
    print(f"done: relative error against the exact solution {relative_error(model):.3f}")


if __name__ == "__main__":
    main()
