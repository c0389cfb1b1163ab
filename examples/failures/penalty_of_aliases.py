"""Fine-tuning that should stay near the pretrained weights: the reference is detached and not copied, so it moves along."""

import torch
from torch import nn

EXPECT = {"kind": "reference-not-copied", "line": ("cause", "KEPT")}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
pretrained = [p.detach() for p in model.parameters()]  # KEPT


def distance():
    return sum((p - start).square().sum() for p, start in zip(model.parameters(), pretrained, strict=True))


for step in range(60):
    x = torch.randn(32, 16)
    loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()) + 0.1 * distance()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
