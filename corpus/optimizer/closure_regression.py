"""Regression of a 2-D field with closure based optimizer steps in two phases."""
import time
import torch
from torch import nn

EXPECT = {
    "class": "late-not-cleared", "kind": "gradient-not-cleared", "stepping_marker": "CULPRIT", "step": 170,
    "set": "late_longer", "written": "2026-11-25",
}


class Siren(nn.Module):
    def __init__(self, width=400, depth=3):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.body = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, xy):
        h = torch.sin(4.0 * self.first(xy))
        for layer in self.body:
            h = torch.sin(layer(h))
        return self.last(h)


def field(xy):
    x, y = xy[:, :1], xy[:, 1:]
    return torch.sin(3 * x) * torch.cos(2 * y) + 0.3 * x * y


def coarse_closure(model, opt, xy):
    def closure():
        opt.zero_grad()
        loss = (model(xy) - field(xy)).pow(2).mean()
        loss.backward()
        return loss
    return closure


def fine_closure(model, opt, xy):
    def closure():
        err = model(xy) - field(xy)
        loss = err.pow(2).mean() + 0.1 * err.abs().mean()
        loss.backward()
        return loss
    return closure


def fit(model, opt, make_closure, steps, offset, t0):
    for k in range(steps):
        xy = torch.rand(256, 2) * 2 - 1
        loss = opt.step(make_closure(model, opt, xy))  # CULPRIT
        done = offset + k + 1
        if done % 50 == 0:
            print(f"step {done} loss {loss.item():.5f} {(time.time() - t0) / done * 1e3:.1f} ms/step")


if __name__ == "__main__":
    torch.manual_seed(18)
    model = Siren()
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    t0 = time.time()
    fit(model, opt, coarse_closure, 170, 0, t0)
    fit(model, opt, fine_closure, 230, 170, t0)
