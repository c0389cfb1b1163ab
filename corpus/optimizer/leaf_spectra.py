"""Leaf reflectance spectra sorted into four species with a small 1-D convolutional net; the averaged copy of the
network is the one that is kept for the field device.

Report: https://github.com/LeeDoYup/FixMatch-pytorch/issues/10
(also https://github.com/CuriousAI/mean-teacher/issues/9)
"""
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "buffers-left-behind",
    "line": ("cause", "cause"),
    "plain": "The live network reaches high validation accuracy while the averaged copy stays near chance.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

SPECIES = 4
BANDS = 64


def make_spectra(n, rng):
    wave = np.linspace(0, 1, BANDS)
    y = rng.integers(0, SPECIES, n)
    centre = 0.25 + 0.15 * y + rng.normal(0, 0.02, n)
    dip = -0.8 * np.exp(-((wave[None] - centre[:, None]) / 0.06) ** 2)
    red_edge = 3.0 / (1 + np.exp(-(wave[None] - 0.6) * 12))
    x = 5.0 + red_edge + dip + rng.normal(0, 0.25, (n, BANDS)) + rng.normal(0, 0.2, (n, 1))
    return torch.tensor(x[:, None], dtype=torch.float32), torch.tensor(y)


class SpectrumNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv1d(1, width, 7, padding=3), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(4),
        )
        self.head = nn.Linear(width * BANDS // 8, SPECIES)

    def forward(self, x):
        return self.head(self.trunk(x).flatten(1))


class Averager:
    """Keeps a slowly moving copy of a network."""

    def __init__(self, net, decay=0.97):
        self.net = copy.deepcopy(net).eval()
        self.net.requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, net):
        for slow, fast in zip(self.net.parameters(), net.parameters()):  # <-- cause
            slow.mul_(self.decay).add_(fast, alpha=1 - self.decay)


@torch.no_grad()
def accuracy(net, x, y):
    was = net.training
    net.eval()
    acc = (net(x).argmax(1) == y).float().mean().item()
    net.train(was)
    return acc


def main():
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    x, y = make_spectra(1440, rng)
    xv, yv = make_spectra(600, rng)
    loader = DataLoader(TensorDataset(x, y), batch_size=48, shuffle=True)
    net = SpectrumNet()
    slow = Averager(net)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    for epoch in range(5):
        total = 0.0
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            slow.update(net)
            total += loss.item() * len(xb)
        print(f"epoch {epoch}  loss {total / len(x):.4f}  live {accuracy(net, xv, yv):.3f}  "
              f"averaged {accuracy(slow.net, xv, yv):.3f}")
    torch.save(slow.net.state_dict(), "/tmp/leaf_spectra_device.pt")


if __name__ == "__main__":
    main()
