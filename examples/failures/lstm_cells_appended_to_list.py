"""Learned optimizer: LSTM cells are created in a loop and appended to a list attribute."""

import torch
from torch import nn

EXPECT = {"kind": "unregistered-parameter", "line": ("cut", "CUT"), "module": ""}


class Cell(nn.Module):
    def __init__(self, i, h):
        super().__init__()
        self.cell, self.norm = nn.LSTMCell(i, h), nn.LayerNorm(h)

    def forward(self, x, state):
        h, c = self.cell(x, state)
        return self.norm(h), c


class MetaOptimizer(nn.Module):
    def __init__(self, layers=2, hidden=6):
        super().__init__()
        self.inp, self.out = nn.Linear(2, hidden), nn.Linear(hidden, 1)
        self.lstms = []  # CUT
        for i in range(layers):
            self.lstms.append(Cell(hidden, hidden))  # CUT
        self.hidden = hidden

    def forward(self, x, steps=3):
        h = torch.tanh(self.inp(x))
        states = [(torch.zeros(len(x), self.hidden), torch.zeros(len(x), self.hidden)) for _ in self.lstms]
        for _ in range(steps):
            for i, lstm in enumerate(self.lstms):
                states[i] = lstm(h, states[i])
                h = states[i][0]
        return self.out(h)


torch.manual_seed(0)
meta = MetaOptimizer()
opt = torch.optim.Adam(meta.parameters(), lr=1e-3)
for epoch in range(3):
    x = torch.randn(10, 2)
    loss = (meta(x) - x.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(len(list(meta.parameters())))
