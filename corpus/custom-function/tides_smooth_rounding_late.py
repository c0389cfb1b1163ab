"""Tide gauges: after 150 steps the forecast is rounded to the centimetres of the gauge, by a layer that should let the
gradient through. The layer is a module, and nothing calls its backward. A loss on the raw forecast keeps going."""
import math

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": "backward-never-called", "line": ("cause", "NEVER"), "set": "ledger", "written": "2026-11-29",
    "plain": "from step 150 on the error of the rounded forecast is not trained",
}

ROUNDED_FROM, STEPS = 150, 360


class Centimetres(nn.Module):
    """Rounds, with the gradient of the identity."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, level):
        return torch.round(level / self.size) * self.size

    def backward(self, ctx, grad_output):  # NEVER
        return grad_output


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(1, 24, batch_first=True)
        self.level = nn.Linear(24, 6)
        self.gauge = Centimetres(0.05)

    def forward(self, past, rounded):
        level = self.level(self.memory(past)[1][0])
        return (self.gauge(level) if rounded else level), level


def windows(count):
    start = 400 * torch.rand(count, 1)
    hours = start + torch.arange(36.0)
    level = torch.sin(2 * math.pi * hours / 12.4) + 0.4 * torch.sin(2 * math.pi * hours / 12.0)
    return level[:, :30, None], level[:, 30:]


def main():
    torch.manual_seed(2)
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(STEPS):
        past, future = windows(32)
        given, raw = model(past, step >= ROUNDED_FROM)
        loss = F.smooth_l1_loss(given, future) + 0.1 * F.mse_loss(raw, future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
