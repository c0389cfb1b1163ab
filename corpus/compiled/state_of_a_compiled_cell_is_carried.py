"""The state of a compiled cell goes on to the next step with its graph."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "second-backward",
    "line": ("reused", "HERE"),
    "says": ["detach"],
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.back = nn.Linear(4, 8), nn.Linear(8, 8)

    def forward(self, x, hidden):
        return torch.tanh(self.inner(x) + self.back(hidden))


torch.manual_seed(0)
cell, head = Cell(), nn.Linear(8, 1)
run = torch.compile(cell, backend=BACKEND)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
hidden = torch.zeros(6, 8)
for _step in range(5):
    x = torch.randn(6, 4)
    hidden = run(x, hidden)  # HERE
    loss = (head(hidden) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
