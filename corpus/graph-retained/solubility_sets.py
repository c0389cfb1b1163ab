"""Solubility of molecules given as sets of atoms; train and test error are recorded several times in each epoch.

Report: https://github.com/choderalab/pinot/issues/23
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "graph-retained",
    "line": ("made", "HERE"),
    "plain": "The loss is fine, but the memory of the process grows with every record and never falls.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

ATOMS, KINDS = 24, 12


def make_molecules(count, seed):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(1, KINDS, size=(count, ATOMS))
    sizes = rng.integers(6, ATOMS + 1, size=count)
    kinds[np.arange(ATOMS)[None] >= sizes[:, None]] = 0
    share = np.linspace(-1, 1, KINDS)
    share[0] = 0.0
    solubility = share[kinds].sum(1) + 0.5 * (kinds == 3).sum(1) * (kinds == 7).sum(1) + rng.normal(0, 0.1, count)
    return TensorDataset(torch.from_numpy(kinds), torch.tensor(solubility, dtype=torch.float32))


class SetModel(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.atoms = nn.Embedding(KINDS, width, padding_idx=0)
        self.each = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.whole = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, kinds):
        present = (kinds > 0).unsqueeze(-1).float()
        return self.whole((self.each(self.atoms(kinds)) * present).sum(1) / 8).squeeze(-1)


class History:
    def __init__(self):
        self.records = []

    def add(self, step, **errors):
        self.records.append((step, errors))

    def last(self, name):
        return float(self.records[-1][1][name])


def mean_error(model, data):
    kinds, solubility = data.tensors
    return (model(kinds) - solubility).abs().mean()  # HERE


def megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2 ** 20


def main():
    torch.manual_seed(0)
    train, test = make_molecules(2000, seed=1), make_molecules(500, seed=2)
    model, history = SetModel(), History()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(8):
        for kinds, solubility in DataLoader(train, batch_size=64, shuffle=True):
            loss = nn.functional.smooth_l1_loss(model(kinds), solubility)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 16 == 0:
                part = TensorDataset(*train[:500])
                history.add(step, train=mean_error(model, part), test=mean_error(model, test))  # HERE
        print(f"epoch {epoch}  train error {history.last('train'):.3f}  test error {history.last('test'):.3f}  "
              f"memory {megabytes():.0f} MB", flush=True)


if __name__ == "__main__":
    main()
