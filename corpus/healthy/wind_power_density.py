"""Forecast wind power with a density: a GRU gives mean and spread of the next value.

What looks suspicious: the loss goes below zero and keeps falling, which a loss that is an error could not do.
Why it is right: it is the negative logarithm of a density; where the spread is small the density is above one and its
negative logarithm below zero. The share of values within one spread of the mean stays near 0.68.
Report: https://github.com/roggirg/AutoBots/issues/7
"""
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "set": "twentythird",
    "written": "2026-11-28",
}

SPAN = 24


def make_power(hours=4000, seed=0):
    rng = np.random.default_rng(seed)
    wind = np.zeros(hours)
    for t in range(1, hours):
        wind[t] = 0.95 * wind[t - 1] + 0.2 * rng.normal() + 0.15 * np.sin(2 * np.pi * t / 24)
    power = 1 / (1 + np.exp(-2 * wind))
    return (power + rng.normal(scale=0.005 + 0.02 * power, size=hours)).astype(np.float32)


def windows(series, start, stop):
    x = np.stack([series[t:t + SPAN] for t in range(start, stop - SPAN)])
    y = np.stack([series[t + 1:t + SPAN + 1] for t in range(start, stop - SPAN)])
    hour = np.stack([(np.arange(t, t + SPAN) % 24) / 24 for t in range(start, stop - SPAN)])
    features = np.stack([x, np.sin(2 * np.pi * hour), np.cos(2 * np.pi * hour)], axis=-1).astype(np.float32)
    return TensorDataset(torch.from_numpy(features), torch.from_numpy(y))


class DensityForecaster(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.rnn = nn.GRU(3, width, batch_first=True)
        self.mean = nn.Linear(width, 1)
        self.spread = nn.Linear(width, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        mean = torch.sigmoid(self.mean(h).squeeze(-1))
        spread = nn.functional.softplus(self.spread(h).squeeze(-1)) + 1e-3
        return Normal(mean, spread)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    inside = error = total = 0.0
    for x, y in loader:
        density = model(x)
        gap = (density.mean[:, -1] - y[:, -1]).abs()
        inside += (gap < density.stddev[:, -1]).sum().item()
        error += gap.sum().item()
        total += len(y)
    model.train()
    return inside / total, error / total


def main():
    torch.manual_seed(1)
    series = make_power()
    train = DataLoader(windows(series, 0, 3000), batch_size=64, shuffle=True)
    test = DataLoader(windows(series, 3000, 4000), batch_size=256)
    model = DensityForecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12 * len(train))
    for epoch in range(12):
        total = 0.0
        for x, y in train:
            loss = -model(x).log_prob(y).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        inside, error = evaluate(model, test)
        print(f"epoch {epoch:2d}  loss {total / len(train):7.4f}  within one spread {inside:.3f}  mean error {error:.4f}")


if __name__ == "__main__":
    main()
