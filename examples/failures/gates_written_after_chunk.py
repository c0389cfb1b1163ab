"""LSTM cell that applies its gates in place to the chunks of one product."""

import torch
from torch import nn

EXPECT = {"kind": "forward-error", "line": ("cause", "CULPRIT")}


class Cell(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gates = nn.Linear(2 * size, 4 * size)

    def forward(self, x, h, c):
        i, f, o, g = self.gates(torch.cat([x, h], -1)).chunk(4, -1)
        for gate in (i, f, o):
            gate.sigmoid_()  # CULPRIT
        c = f * c + i * g.tanh()
        return o * c.tanh(), c


if __name__ == "__main__":
    torch.manual_seed(0)
    cell = Cell(8)
    h = c = torch.zeros(4, 8)
    for x in torch.randn(5, 4, 8):
        h, c = cell(x, h, c)
    h.sum().backward()
