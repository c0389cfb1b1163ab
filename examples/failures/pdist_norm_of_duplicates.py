"""Molecule energy: pairwise distances with .norm(dim=-1) are fine (subgradient 0), 1/r of the diagonal is not."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-backward", "line": ("cause", "CULPRIT")}


class Coulomb(nn.Module):
    def __init__(self, species):
        super().__init__()
        self.charge = nn.Embedding(species, 1)
        self.shift = nn.Parameter(torch.zeros(3))

    def forward(self, z, xyz):
        q = self.charge(z).squeeze(-1)
        delta = xyz[:, None] - xyz[None] * (1 + self.shift)
        r = delta.norm(dim=-1)
        energy = q[:, None] * q[None] / r  # CULPRIT
        eye = torch.eye(len(z), dtype=torch.bool)
        return torch.where(eye, torch.zeros(()), energy).sum() / 2


torch.manual_seed(0)
model = Coulomb(5)
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(2):
    loss = (model(torch.randint(0, 5, (6,)), torch.randn(6, 3)) + 1).square()
    opt.zero_grad()
    loss.backward()
    opt.step()
print({"reproduced": bool(model.charge.weight.isnan().any() or model.shift.isnan().any()), "loss": loss.item()})
