"""Feature bank: bank[index] = model.features(x) per sample id, for mining, with the graph."""

import torch
from torch import nn

EXPECT = {"kind": "graph-retained", "line": ("held", "HOLDS")}


class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.head = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        z = torch.tanh(self.features(x))
        return z, self.head(z)


torch.manual_seed(0)
model, bank = Embed(), {}
opt = torch.optim.SGD(model.parameters(), lr=0.05)
data, labels = torch.randn(60, 6), torch.randint(0, 3, (60,))
for start in range(0, 60, 6):
    idx = range(start, start + 6)
    z, logits = model(data[start : start + 6])
    for i, row in zip(idx, z):
        bank[i] = row  # HOLDS
    loss = nn.functional.cross_entropy(logits, labels[start : start + 6])
    opt.zero_grad()
    loss.backward()
    opt.step()
