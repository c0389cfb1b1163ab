"""An LSTM of one's own over 40 steps of time, unrolled in one region, with a normalised state."""

import os

import torch
from torch import nn

EXPECT = {"kind": None, "set": "compiled", "written": "2026-11-23"}

BACKEND = os.environ.get("BACKEND", "aot_eager")


class Cell(nn.Module):
    def __init__(self, inputs=3, width=12):
        super().__init__()
        self.drive, self.back, self.norm = (
            nn.Linear(inputs, 4 * width),
            nn.Linear(width, 4 * width),
            nn.LayerNorm(width),
        )
        with torch.no_grad():
            self.drive.bias[width : 2 * width] = 1.0  # it remembers

    def forward(self, frame, state):
        hidden, memory = state
        i, f, g, o = (self.drive(frame) + self.back(hidden)).chunk(4, -1)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        return o.sigmoid() * self.norm(memory).tanh(), memory


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = Cell(), nn.Linear(12, 1)

    def forward(self, x):
        state = x.new_zeros(x.shape[1], 12), x.new_zeros(x.shape[1], 12)
        for frame in x:
            state = self.cell(frame, state)
        return self.out(state[0])


torch.manual_seed(0)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _step in range(8):
    x = torch.randn(40, 6, 3)
    loss = (run(x) - x[-5:, :, :1].mean(0)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
