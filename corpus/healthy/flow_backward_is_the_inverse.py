"""Density of two moons by a flow of couplings. Its layers have a method called backward, which is the inverse: it makes
samples, and is not called while the flow trains."""
import torch
from sklearn.datasets import make_moons
from torch import nn

EXPECT = {"kind": "none", "set": "ledger", "written": "2026-11-29"}


class Coupling(nn.Module):
    def __init__(self, flip, width=24):
        super().__init__()
        self.flip = flip
        self.scale = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1), nn.Tanh())
        self.shift = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        kept, moved = x.flip(1).chunk(2, 1) if self.flip else x.chunk(2, 1)
        log_scale = self.scale(kept)
        out = torch.cat([kept, moved * log_scale.exp() + self.shift(kept)], 1)
        return (out.flip(1) if self.flip else out), log_scale.sum(1)

    def backward(self, z):
        with torch.no_grad():  # samples need no gradient
            kept, moved = z.flip(1).chunk(2, 1) if self.flip else z.chunk(2, 1)
            out = torch.cat([kept, (moved - self.shift(kept)) * (-self.scale(kept)).exp()], 1)
            return out.flip(1) if self.flip else out


class Flow(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.layers = nn.ModuleList([Coupling(i % 2 == 1) for i in range(depth)])

    def forward(self, x):
        total = 0
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return x, total

    def backward(self, z):
        for layer in reversed(self.layers):
            z = layer.backward(z)
        return z


def main():
    torch.manual_seed(0)
    points, _ = make_moons(800, noise=0.06, random_state=0)
    points = torch.tensor(points, dtype=torch.float32)
    points = (points - points.mean(0)) / points.std(0)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=4e-3)
    for step in range(200):
        z, log_det = flow(points[torch.randint(len(points), (128,))])
        loss = (0.5 * z.square().sum(1) - log_det).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:3d}  negative log-likelihood {loss.item():.3f}")


if __name__ == "__main__":
    main()
