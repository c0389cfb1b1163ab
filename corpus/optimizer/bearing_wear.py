"""Remaining life of bearings from vibration features. The network is kept in bfloat16 to save memory on the small
industrial box.

Report: https://github.com/workofart/ml-by-hand/pull/85
(also https://github.com/pytorch/ao/pull/1124)
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "update-rounds-away",
    "line": ("cause", "cause"),
    "plain": "The loss falls a little and then lies on a plateau; with float32 weights (and autocast) it goes far lower.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

FEATURES = 24


def make_bearings(n, rng):
    x = rng.normal(0, 1, (n, FEATURES))
    mix = np.random.default_rng(99).normal(0, 1, (FEATURES, 4))
    z = x @ mix / np.sqrt(FEATURES)
    y = np.tanh(z[:, 0] * 1.5) + 0.7 * z[:, 1] * z[:, 2] + 0.5 * np.abs(z[:, 3])
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y + rng.normal(0, 0.02, n), dtype=torch.float32)


class LifeNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
                                 nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Runner:
    def __init__(self, model, lr):
        self.model = model.to(torch.bfloat16)  # <-- cause
        self.dtype = next(model.parameters()).dtype
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.01)

    def loss(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = self.model(x.to(self.dtype))
        return nn.functional.mse_loss(pred.float(), y)

    def train_epoch(self, loader):
        total = 0.0
        for x, y in loader:
            loss = self.loss(x, y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item() / len(loader)
        return total

    @torch.no_grad()
    def evaluate(self, x, y):
        return self.loss(x, y).item()


def main():
    torch.manual_seed(6)
    rng = np.random.default_rng(6)
    x, y = make_bearings(4096, rng)
    xv, yv = make_bearings(1024, rng)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    runner = Runner(LifeNet(), lr=1e-4)
    for epoch in range(12):
        loss = runner.train_epoch(loader)
        if epoch % 3 == 2:
            print(f"epoch {epoch}  loss {loss:.4f}  validation {runner.evaluate(xv, yv):.4f}")


if __name__ == "__main__":
    main()
