"""The hidden layers of a regression begin with ones, to make runs repeatable: all their units are copies."""

import torch
from torch import nn

EXPECT = {"kind": "units-never-differ", "line": ("cause", "ONES")}


def make_repeatable(module):
    if isinstance(module, nn.Linear):
        module.bias.data.zero_()
        module.weight.data.fill_(1.0 / module.in_features)  # ONES


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.Linear(24, 24), nn.SiLU(), nn.Linear(24, 1))
model.apply(make_repeatable)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(80):
    x = torch.randn(64, 6)
    loss = (model(x)[:, 0] - x[:, 0] * x[:, 1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
