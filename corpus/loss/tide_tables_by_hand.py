"""Prediction of shape (N, 1) is subtracted from a target of shape (N,), broadcasting to (N, N); the loss pulls every
prediction to the batch mean.

Report: well known, as in PyTorch forum and Stack Overflow threads on (N, 1) against (N,) targets,
network predicts the mean
"""
import math

import torch
import torch.nn as nn

EXPECT = {
    "kind": "silent-broadcast",
    "line": ("called", "HERE"),
    "plain": "Test rmse 1.06 m (spread of levels 1.07, forecasts 0.03); with squeeze(-1) rmse 0.14.",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(5)


def harbour_levels(hours=3000):
    t = torch.arange(hours, dtype=torch.float32)
    level = 1.4 * torch.sin(2 * math.pi * t / 12.42)
    level += 0.5 * torch.sin(2 * math.pi * t / 12.0 + 0.7)
    level += 0.3 * torch.sin(2 * math.pi * t / 25.8 + 1.1)
    surge = torch.zeros(hours)
    for i in range(1, hours):
        surge[i] = 0.97 * surge[i - 1] + 0.03 * torch.randn(1).item()
    return level + surge


def windows(series, length=30, ahead=3):
    xs = series.unfold(0, length, 1)[: -ahead]
    ys = series[length + ahead - 1:]
    n = min(len(xs), len(ys))
    return xs[:n].unsqueeze(-1), ys[:n]


class TideNet(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(self.norm(h[:, -1]))


class TideForecaster:
    def __init__(self, lr=4e-3, delta=0.5):
        self.net = TideNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.delta = delta

    def criterion(self, pred, target):
        err = pred - target
        small = err.abs() < self.delta
        return torch.where(small, 0.5 * err ** 2, self.delta * (err.abs() - 0.5 * self.delta)).mean()

    def fit(self, x, y, epochs=6, batch=64):
        for epoch in range(epochs):
            self.net.train()
            order = torch.randperm(len(x))
            seen, total = 0, 0.0
            for s in range(0, len(x), batch):
                idx = order[s:s + batch]
                pred = self.net(x[idx])
                loss = self.criterion(pred, y[idx])  # HERE
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item() * len(idx)
                seen += len(idx)
            print(f"epoch {epoch} train loss {total / seen:.4f}")
        return self

    @torch.no_grad()
    def predict(self, x):
        self.net.eval()
        return self.net(x).flatten()


def main():
    series = harbour_levels()
    x, y = windows(series)
    cut = 2400
    model = TideForecaster().fit(x[:cut], y[:cut])
    pred = model.predict(x[cut:])
    rmse = (pred - y[cut:]).pow(2).mean().sqrt().item()
    print(f"test rmse {rmse:.3f} m, spread of levels {y[cut:].std().item():.3f} m, "
          f"spread of forecasts {pred.std().item():.3f} m")


if __name__ == "__main__":
    main()
