"""In the pinball loss a prediction column of shape (B, 1) is subtracted from targets of shape (B,), so every prediction
is compared with every target of the batch and each quantile collapses to the marginal quantile.

Report: github.com/Photon-AI-Research/NeuralSolvers issue 20 and deepset-ai/FARM issue 229 (batch_size against
batch_size x 1), here in a hand-written loss that gives no warning
"""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "silent-broadcast",
    "line": ("called", "HERE"),
    "plain": "validation error of the median 1.164 (band width 3.92) as it is, 0.282 (band width 0.86) with the column squeezed",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(11)
QUANTILES = (0.1, 0.5, 0.9)


def roast_data(n):
    """charge temperature, gas, airflow, bean moisture -> seconds to first crack"""
    x = torch.rand(n, 4) * 2 - 1
    centre = 1.5 * torch.sin(2.0 * x[:, 0]) - 1.2 * x[:, 1] + 0.8 * x[:, 2] * x[:, 3]
    spread = 0.1 + 0.3 * (x[:, 3] + 1) / 2
    return x, centre + spread * torch.randn(n)


class RoastCurve(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
        )
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in QUANTILES)

    def forward(self, x):
        h = self.body(x)
        return [head(h) for head in self.heads]


def pinball(pred, target, q):
    gap = target - pred
    return torch.maximum(q * gap, (q - 1) * gap).mean()


class QuantileRegressor:
    def __init__(self, lr=4e-3, epochs=15, batch_size=64):
        self.net = RoastCurve()
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=lr, weight_decay=1e-4)
        self.epochs = epochs
        self.batch_size = batch_size

    def fit(self, x, y):
        loader = DataLoader(TensorDataset(x, y), batch_size=self.batch_size, shuffle=True)
        total = self.epochs * len(loader)
        sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt, lambda s: 0.5 * (1 + math.cos(math.pi * s / total)) + 0.02
        )
        for epoch in range(self.epochs):
            running = 0.0
            for xb, yb in loader:
                columns = self.net(xb)
                loss = sum(pinball(c, yb, q) for c, q in zip(columns, QUANTILES))  # HERE
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                sched.step()
                running += loss.item()
            print(f"epoch {epoch:2d}  pinball {running / len(loader):.4f}")
        return self

    @torch.no_grad()
    def predict(self, x):
        return torch.cat(self.net(x), dim=1)


def main():
    x, y = roast_data(1600)
    xv, yv = roast_data(600)
    model = QuantileRegressor().fit(x, y)
    out = model.predict(xv)
    inside = ((yv > out[:, 0]) & (yv < out[:, 2])).float().mean()
    mae = (out[:, 1] - yv).abs().mean()
    width = (out[:, 2] - out[:, 0]).mean()
    print(f"median abs error {mae:.3f}  band width {width:.3f}  coverage {inside:.2f}")


if __name__ == "__main__":
    main()
