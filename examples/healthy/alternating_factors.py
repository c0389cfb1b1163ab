"""Healthy: a matrix is factored by training one factor while the other is frozen, in turn, as alternating least squares
and EM do."""

import torch
from torch import nn

EXPECT = {"kind": None}

torch.manual_seed(0)
wanted = torch.randn(20, 3) @ torch.randn(3, 12)


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Parameter(torch.randn(20, 3))
        self.right = nn.Parameter(torch.randn(3, 12))
        self.offset = nn.Parameter(torch.zeros(12))

    def forward(self):
        return self.left @ self.right + self.offset


model = Factors()
turns = [[model.left], [model.right, model.offset]]
optimizers = [torch.optim.Adam(turn, 0.05) for turn in turns]
for i in range(24):
    mine = i % 2
    for which, turn in enumerate(turns):
        for p in turn:
            p.requires_grad_(which == mine)
    loss = (model() - wanted).square().mean()
    optimizers[mine].zero_grad()
    loss.backward()
    optimizers[mine].step()
print(loss.item())
