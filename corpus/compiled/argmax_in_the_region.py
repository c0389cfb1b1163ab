"""The chosen expert is picked by argmax, so the router learns nothing."""

import os

import torch
from torch import nn

EXPECT = {"op": "argmax", "kind": "none-grad", "line": ("cut", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4, 3)
        self.experts = nn.Parameter(torch.randn(3, 4, 2))

    def forward(self, x):
        chosen = self.router(x).argmax(-1)  # HERE
        return torch.einsum("bi,bij->bj", x, self.experts[chosen])


torch.manual_seed(16)
net = Mixture()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _step in range(6):
    x = torch.randn(8, 4)
    loss = (run(x) - x[:, :2]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
