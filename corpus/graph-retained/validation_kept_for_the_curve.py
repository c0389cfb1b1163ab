"""Regressor whose validation runs without no_grad: each round its losses go into the lists for the curve at the end as they come out of the network, graphs and all.

Report: https://github.com/skorch-dev/skorch/issues/218 (memory grows with every validation batch; the list of losses as in facebookarchive/loop issue 57)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 39,
    "set": "seventh", "written": "2026-11-22",
}


class Curves:
    def __init__(self):
        self.train, self.valid = [], []

    def add_train(self, step, loss):
        self.train.append((step, loss.item()))

    def add_valid(self, step, loss):
        self.valid.append((step, loss))  # HOLDS

    def report(self):
        return [(step, round(float(loss), 4)) for step, loss in self.valid]


class Regressor(nn.Module):
    def __init__(self, inputs=6, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.mean(self.body(x)).squeeze(1)


def draw(n):
    x = torch.randn(n, 6)
    return x, x[:, 0] * x[:, 1] + x[:, 2].abs()


def validate(model, loader, curves, step):
    model.eval()
    for x, y in loader:
        curves.add_valid(step, nn.functional.mse_loss(model(x), y))
    model.train()


torch.manual_seed(0)
model, curves = Regressor(), Curves()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
held_out = [draw(64) for _ in range(4)]
for step in range(400):
    x, y = draw(32)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    curves.add_train(step, loss)
    if step % 20 == 19 and step > 20:
        validate(model, held_out, curves, step)
print(curves.report()[-3:])
