"""Ripeness of fruit from spectra: a net trained in the laboratory is fine-tuned on pairs of scans from an orchard robot.

Looks suspicious: during fine-tuning model.eval() is called and never undone while the optimizer works, so dropout is off and the
running statistics of the normalisation layers never move. It is right: with two scans in a batch the batch statistics are far
too rough, so the laboratory's statistics are kept; weights still get gradients and the error in the orchard falls.
Follows https://github.com/backseason/PoolNet/issues/30 and https://github.com/facebookresearch/FixRes/issues/9
"""
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "nothing is wrong",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

BANDS = 80


def spectra(n, seed, orchard):
    rng = np.random.default_rng(seed)
    wave = np.linspace(0, 1, BANDS)
    ripe = rng.uniform(-1, 1, size=(n, 1))
    water = rng.uniform(0.5, 1.5, size=(n, 1))
    x = water * np.exp(-((wave - 0.75) / 0.08) ** 2) + np.exp(-((wave - 0.35 - 0.05 * ripe) / 0.06) ** 2)
    x = x + 0.3 * ripe * np.sin(9 * wave) + 0.05 * rng.normal(size=(n, BANDS))
    if orchard:
        x = 0.9 * x + 0.25 * (wave > 0.5) * ripe + 0.1 * wave
    return torch.tensor(x, dtype=torch.float32).unsqueeze(1), torch.tensor(ripe[:, 0], dtype=torch.float32)


class Ripeness(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 16, 7, stride=2), nn.BatchNorm1d(16), nn.ReLU(),
            nn.Conv1d(16, 32, 5, stride=2), nn.BatchNorm1d(32), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 17, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.1),
        )
        self.head = nn.Linear(48, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


@torch.no_grad()
def held_error(model, data):
    was = model.training
    model.eval()
    error = nn.functional.mse_loss(model(data[0]), data[1]).item()
    model.train(was)
    return error


def epoch_of(model, opt, loader):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(loader)


def in_laboratory(model):
    loader = DataLoader(TensorDataset(*spectra(2500, 0, False)), batch_size=64, shuffle=True)
    held = spectra(500, 1, False)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    model.train()
    for epoch in range(8):
        loss = epoch_of(model, opt, loader)
        print(f"laboratory epoch {epoch} loss {loss:.4f} held {held_error(model, held):.4f}")


def in_orchard(model):
    loader = DataLoader(TensorDataset(*spectra(600, 2, True)), batch_size=2, shuffle=True)
    held = spectra(500, 3, True)
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    print(f"orchard before: held {held_error(model, held):.4f}")
    model.eval()
    for epoch in range(4):
        loss = epoch_of(model, opt, loader)
        print(f"orchard epoch {epoch} loss {loss:.4f} held {held_error(model, held):.4f}")


def main():
    torch.manual_seed(11)
    model = Ripeness()
    in_laboratory(model)
    kept = copy.deepcopy([b.clone() for b in model.buffers()])
    in_orchard(model)
    same = all(torch.equal(a, b) for a, b in zip(kept, model.buffers()))
    print("statistics of the laboratory kept:", same)


if __name__ == "__main__":
    main()
