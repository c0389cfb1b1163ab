"""Radii of noisy spheres: a hand-written robust loss is right alone, and one of two terms since its weight is 0.1."""
import torch
from torch import nn

EXPECT = {
    "kind": "gradient-ignored", "line": ("backward", "RETURNED"), "set": "ledger", "written": "2026-11-29",
    "plain": "the weight of the second loss has no effect",
}


class Robust(torch.autograd.Function):
    @staticmethod
    def forward(ctx, error):
        ctx.save_for_backward(error)
        return torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5).mean()

    @staticmethod
    def backward(ctx, unused):
        (error,) = ctx.saved_tensors
        return error.clamp(-1, 1) / error.numel()  # RETURNED


class Sphere(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(30, 32), nn.SiLU())
        self.radius, self.centre = nn.Linear(32, 1), nn.Linear(32, 3)

    def forward(self, points):
        hidden = self.body(points.flatten(1))
        return self.radius(hidden).squeeze(1), self.centre(hidden)


def spheres(count):
    radius, centre = 1 + torch.rand(count), torch.randn(count, 3)
    surface = nn.functional.normalize(torch.randn(count, 10, 3), dim=2)
    return centre[:, None] + radius[:, None, None] * surface + 0.05 * torch.randn(count, 10, 3), radius, centre


def main():
    torch.manual_seed(0)
    model = Sphere()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(120):
        points, radius, centre = spheres(64)
        found_radius, found_centre = model(points)
        loss = Robust.apply(found_radius - radius) + 0.1 * Robust.apply(found_centre - centre)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
