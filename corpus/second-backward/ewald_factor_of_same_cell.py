"""Long-range energies with a learned smearing: what depends only on the cell is kept as long as the cell does not change, and after the runs at constant pressure come those at constant volume.

Report: https://github.com/lab-cosmo/torch-pme/issues/62 (caching destroys the graph: a second backward when the cell is not changing)
"""
import math

import torch
from torch import nn

EXPECT = {
    "class": "late-second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "step": 81,
    "set": "seventh", "written": "2026-11-22",
}


class ReciprocalSum(nn.Module):
    def __init__(self, reach=2):
        super().__init__()
        self.log_smearing = nn.Parameter(torch.tensor(0.0))
        n = torch.arange(-reach, reach + 1).float()
        grid = torch.cartesian_prod(n, n, n)
        self.register_buffer("grid", grid[grid.abs().sum(1) > 0])
        self.cell, self.kernel, self.vectors = None, None, None

    def update_cell(self, cell):
        if self.cell is not None and torch.equal(self.cell, cell):
            return
        self.cell = cell
        self.vectors = 2 * math.pi * self.grid @ torch.linalg.inv(cell).t()
        k2 = self.vectors.square().sum(1)
        smearing = self.log_smearing.exp()
        self.kernel = torch.exp(-0.5 * smearing.square() * k2) / k2 / torch.linalg.det(cell)

    def forward(self, positions, charges, cell):
        self.update_cell(cell)
        phase = positions @ self.vectors.t()
        structure = (charges[:, None] * phase.cos()).sum(0).square() + (charges[:, None] * phase.sin()).sum(0).square()
        return 2 * math.pi * (self.kernel * structure).sum()  # REUSED


class Potential(nn.Module):
    def __init__(self, species=3):
        super().__init__()
        self.charge, self.long_range = nn.Embedding(species, 1), ReciprocalSum()
        self.offset = nn.Embedding(species, 1)

    def forward(self, species, positions, cell):
        charges = self.charge(species).squeeze(1)
        return self.offset(species).sum() + self.long_range(positions, charges - charges.mean(), cell)


def frames(total, first_constant):
    for step in range(total):
        size = 6.0 if step >= first_constant else 6.0 + 0.3 * torch.rand(()).item()
        species = torch.randint(0, 3, (8,))
        positions = size * torch.rand(8, 3)
        yield step, species, positions, size * torch.eye(3), species.float().mean() - 1


torch.manual_seed(0)
model = Potential()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step, species, positions, cell, target in frames(140, first_constant=80):
    loss = (model(species, positions, cell) - target).square()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
