"""Energies of small molecules given as sets of atoms, from pairwise distances.

After some hundred good steps the error on held-out molecules jumps up and never comes down again.
Follows https://github.com/pytorch/pytorch/issues/68425
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "plain": "the loss and the held-out error fall for a while, then both jump up and stay there; no nan is printed",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

ATOMS = 7


def energy_of(xyz, kinds):
    diff = xyz[:, None, :] - xyz[None, :, :]
    dist = np.sqrt((diff ** 2).sum(-1)) + 1e-9
    pair = (kinds[:, None] + 1.0) * (kinds[None, :] + 1.0)
    upper = np.triu_indices(len(kinds), 1)
    return float((pair * np.exp(-dist))[upper].sum() / 10.0)


class Molecules(Dataset):
    def __init__(self, n, seed, disorder=()):
        rng = np.random.default_rng(seed)
        self.rows = []
        for i in range(n):
            xyz = rng.normal(size=(ATOMS, 3)) * 1.4
            kinds = rng.integers(0, 3, size=ATOMS)
            if i in disorder:
                xyz[4] = xyz[2]
            self.rows.append((
                torch.tensor(xyz, dtype=torch.float32),
                torch.tensor(kinds),
                torch.tensor(energy_of(xyz, kinds), dtype=torch.float32),
            ))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def pair_distances(xyz, left, right):
    squared = (xyz[:, left] - xyz[:, right]).pow(2).sum(-1)
    return torch.where(squared > 0, squared.sqrt(), torch.zeros_like(squared))  # HERE


class SetModel(nn.Module):
    def __init__(self, width=32, bumps=16):
        super().__init__()
        self.kind = nn.Embedding(3, width)
        self.stretch = nn.Parameter(torch.ones(3))
        self.register_buffer("centres", torch.linspace(0, 5, bumps))
        self.filter = nn.Sequential(nn.Linear(bumps, width), nn.SiLU(), nn.Linear(width, width))
        self.read = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, xyz, kinds):
        left, right = torch.triu_indices(xyz.shape[1], xyz.shape[1], 1)
        h = self.kind(kinds)
        dist = pair_distances(xyz * self.stretch, left, right)
        bumps = torch.exp(-4.0 * (dist[..., None] - self.centres) ** 2)
        pairs = self.filter(bumps) * h[:, left] * h[:, right]
        return self.read(pairs).sum(1).squeeze(-1)


def valid_error(model, loader):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for xyz, kinds, energy in loader:
            total += (model(xyz, kinds) - energy).abs().sum().item()
            count += len(energy)
    model.train()
    return total / count


def main():
    torch.manual_seed(3)
    train = DataLoader(Molecules(1500, 0), batch_size=32, shuffle=True)
    extra = DataLoader(Molecules(1500, 1, disorder={700}), batch_size=32, shuffle=False)
    valid = DataLoader(Molecules(300, 2), batch_size=100)
    model = SetModel()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(16):
        for xyz, kinds, energy in (extra if epoch % 4 == 3 else train):
            loss = nn.functional.smooth_l1_loss(model(xyz, kinds), energy)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
        print(f"epoch {epoch} step {step} loss {loss.item():.4f} valid mae {valid_error(model, valid):.4f}")


if __name__ == "__main__":
    main()
