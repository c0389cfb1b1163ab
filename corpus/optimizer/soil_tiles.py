"""Soil tiles (here: the digits images, rotated) get a new classifier on top of features learnt on upright tiles; first
only the head is trained, later the features are trained along.

Report: https://theneuralbase.com/pytorch/learn/intermediate/freezing-base-model-weights/
(also https://www.codegenes.net/blog/optimize-part-of-parameters-in-pytorch)
"""
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "parameter-not-in-optimizer",
    "line": ("optimizer", "cause"),
    "plain": "The accuracy stays on the plateau of the head-only phase after the features are unfrozen.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

UNFREEZE_AT = 5


def load_tiles():
    data = load_digits()
    x = torch.tensor(data.images / 16.0, dtype=torch.float32)[:, None]
    y = torch.tensor(data.target)
    order = torch.tensor(np.random.default_rng(0).permutation(len(x)))
    return x[order], y[order]


class TileNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                      nn.Linear(64, 12), nn.ReLU())
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def accuracy(net, x, y):
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def learn_features(x, y):
    keep = y < 3
    net = TileNet(3)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(x[keep], y[keep]), batch_size=32, shuffle=True)
    for _ in range(4):
        for xb, yb in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(net(xb), yb).backward()
            opt.step()
    return net.backbone


class FineTuner:
    def __init__(self, net, lr=5e-3):
        self.net = net
        self.net.backbone.requires_grad_(False)
        self.opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=lr)  # <-- cause

    def unfreeze(self):
        self.net.backbone.requires_grad_(True)  # <-- cause
        for group in self.opt.param_groups:
            group["lr"] = 2e-3

    def epoch(self, loader):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.net.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item() / len(loader)
        return total


def main():
    torch.manual_seed(9)
    x, y = load_tiles()
    backbone = learn_features(x[:1200], y[:1200])
    turned = torch.rot90(x, 1, (2, 3))
    loader = DataLoader(TensorDataset(turned[:1200], y[:1200]), batch_size=32, shuffle=True)
    net = TileNet(10)
    net.backbone = backbone
    tuner = FineTuner(net)
    for epoch in range(12):
        if epoch == UNFREEZE_AT:
            tuner.unfreeze()
            print("features are trained from now on")
        loss = tuner.epoch(loader)
        print(f"epoch {epoch}  loss {loss:.4f}  accuracy {accuracy(net, turned[1200:], y[1200:]):.3f}")


if __name__ == "__main__":
    main()
