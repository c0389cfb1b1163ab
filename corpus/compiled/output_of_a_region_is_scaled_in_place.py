"""What a compiled block gives is scaled in place, and its backward needs it as it was."""

import os

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 8)

    def forward(self, x):
        return torch.sigmoid(self.inner(x))


torch.manual_seed(0)
block, head = Block(), nn.Linear(8, 1)
gate = torch.compile(block, backend=BACKEND)
optimizer = torch.optim.SGD([*block.parameters(), *head.parameters()], lr=0.1)
for _step in range(4):
    x = torch.randn(5, 4)
    gated = gate(x)
    with torch.no_grad():
        gated /= gated.sum(1, keepdim=True)  # HERE
    loss = (head(gated) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
