"""Evaporation in a greenhouse from one-hour windows of six sensors, small convolution net.

The loss stops at the variance of the target and all predictions are about equal.
Follows https://github.com/sktime/sktime/issues/10931 and https://github.com/pytorch/pytorch/issues/105739
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "kind": "silent-broadcast",
    "line": ("cause", "HERE"),
    "plain": "no error or warning; the loss falls to the variance of the target and stays there, R2 is about zero",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

SENSORS = 6
MINUTES = 60


class Windows(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        base = rng.normal(size=(n, SENSORS, 1))
        drift = rng.normal(size=(n, SENSORS, 1)) * np.linspace(-1, 1, MINUTES)
        self.x = (base + drift + 0.5 * rng.normal(size=(n, SENSORS, MINUTES))).astype("float32")
        temp, moist, light = self.x[:, 0].mean(-1), self.x[:, 1].mean(-1), drift[:, 2, -1]
        y = temp + 0.6 * np.tanh(2 * moist) + 0.5 * light * (temp > 0) + 0.1 * rng.normal(size=n)
        self.y = y.astype("float32")

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Evaporation(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(SENSORS, 24, 7, stride=2), nn.ReLU(),
            nn.Conv1d(24, 32, 5, stride=2), nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Linear(2 * 32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        h = self.conv(x)
        return self.head(torch.cat([h.mean(-1), h[..., -1]], dim=1))


def pseudo_huber(pred, target, width=2.0):
    gap = (pred - target) / width  # HERE
    return (width ** 2 * ((1 + gap ** 2).sqrt() - 1)).mean()


@torch.no_grad()
def r_squared(model, loader):
    model.eval()
    pred = torch.cat([model(x).flatten() for x, _ in loader])
    true = torch.cat([y for _, y in loader])
    model.train()
    return 1 - ((pred - true) ** 2).sum().item() / ((true - true.mean()) ** 2).sum().item()


def main():
    torch.manual_seed(12)
    train = DataLoader(Windows(3000, 0), batch_size=50, shuffle=True)
    held = DataLoader(Windows(600, 1), batch_size=200)
    model = Evaporation()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(8):
        total = 0.0
        for x, y in train:
            loss = pseudo_huber(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(train):.4f} held R2 {r_squared(model, held):.3f}")


if __name__ == "__main__":
    main()
