"""Orthogonal recurrent network: in the second stage the epoch runs inside parametrize.cached(), which keeps the computed weight with its graph over all steps of the epoch.

Report: https://github.com/pytorch/pytorch/issues/71062 (backward a second time, only with the parametrization cached over several backwards)
"""
import contextlib

import torch
from torch import nn
from torch.nn.utils import parametrize

EXPECT = {
    "class": "late-second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "step": 61,
    "set": "seventh", "written": "2026-11-22",
}


class Cayley(nn.Module):
    def forward(self, x):
        skew = x.triu(1) - x.triu(1).t()
        eye = torch.eye(len(x))
        return torch.linalg.solve(eye + skew, eye - skew)


class OrthogonalRNN(nn.Module):
    def __init__(self, inputs=2, hidden=12):
        super().__init__()
        self.inputs, self.hidden = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden, bias=False)
        self.readout = nn.Linear(hidden, 1)
        parametrize.register_parametrization(self.hidden, "weight", Cayley())

    def forward(self, sequence):
        h = torch.zeros(sequence.shape[1], 12)
        for x in sequence:
            h = torch.tanh(self.inputs(x) + self.hidden(h))  # REUSED
        return self.readout(h).squeeze(1)


def adding_problem(batch=16, length=10):
    numbers, marks = torch.rand(length, batch), torch.zeros(length, batch)
    marks.scatter_(0, torch.stack([torch.randint(0, length // 2, (batch,)), torch.randint(length // 2, length, (batch,))]), 1.0)
    return torch.stack([numbers, marks], 2), (numbers * marks).sum(0)


def train_epoch(model, optimizer, steps):
    for _ in range(steps):
        sequence, target = adding_problem()
        loss = nn.functional.mse_loss(model(sequence), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
model = OrthogonalRNN()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for epoch in range(5):
    fast = epoch >= 3
    with parametrize.cached() if fast else contextlib.nullcontext():
        value = train_epoch(model, optimizer, steps=20)
    print(epoch, value)
