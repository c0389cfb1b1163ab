"""Mixture that grows by an expert when its loss stands still: the first is an attribute, those that are added live in a Python list, of which parameters() knows nothing.

Report: https://github.com/pytorch/pytorch/issues/715 (modules in a list are not among the parameters; asked for in the documentation in issue 38639)
"""
import torch
from torch import nn

EXPECT = {
    "class": "unregistered", "kind": "unregistered-parameter", "cut_marker": "CUT", "step": 60,
    "set": "seventh", "written": "2026-11-22",
}


class Expert(nn.Module):
    def __init__(self, dim, hidden=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


class GrowingMixture(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim, self.base, self.added = dim, Expert(dim), []

    def grow(self):
        self.added.append(Expert(self.dim))  # CUT

    def forward(self, x):
        out = self.base(x)
        for expert in self.added:
            out = out + expert(x)
        return out


class Plateau:
    def __init__(self, every):
        self.every = every

    def reached(self, step):
        return step > 0 and step % self.every == 0


def target(x):
    return torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2]


torch.manual_seed(0)
model = GrowingMixture(4)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
plateau = Plateau(every=60)
for step in range(160):
    if plateau.reached(step):
        model.grow()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        print("experts", 1 + len(model.added), "parameters", sum(p.numel() for p in model.parameters()))
    x = torch.randn(32, 4)
    loss = nn.functional.mse_loss(model(x), target(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
