"""A row of the CSV has an empty field: np.genfromtxt reads NaN, one batch in the middle of the epoch carries it."""

import io

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT")}
ROWS = "\n".join(f"{i / 10:.1f},{i % 7},{i % 3}" if i != 37 else f"{i / 10:.1f},,1" for i in range(60))


def load():
    table = np.genfromtxt(io.StringIO(ROWS), delimiter=",", dtype=np.float32)
    x, y = torch.from_numpy(table[:, :2]), torch.from_numpy(table[:, 2]).long()
    return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=False)


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm, self.net = nn.LayerNorm(2), nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.net(self.input_norm(x))  # CULPRIT


torch.manual_seed(0)
model = Tabular()
opt = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for x, y in load():
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
print({"reproduced": loss.isnan().item()})
