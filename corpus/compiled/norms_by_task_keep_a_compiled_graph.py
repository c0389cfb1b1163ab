"""Now and then the gradient of one task is looked at, which keeps the graph: the donated buffers do not allow it."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "backward-error",
    "line": ("cause", "HERE"),
    "says": ["retain_graph", "donated_buffer = False"],
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.mid = nn.Linear(4, 16), nn.Linear(16, 16)

    def forward(self, x):
        return self.mid(torch.tanh(self.up(x)).square()).relu()


torch.manual_seed(0)
trunk, left, right = Trunk(), nn.Linear(16, 1), nn.Linear(16, 1)
run = torch.compile(trunk, backend=BACKEND)
optimizer = torch.optim.SGD([*trunk.parameters(), *left.parameters(), *right.parameters()], lr=0.01)
for step in range(6):
    features = run(torch.randn(8, 4))  # HERE
    first, second = left(features).square().mean(), (right(features) - 1).square().mean()
    optimizer.zero_grad()
    if step % 3 == 2:
        shared = torch.autograd.grad(first, list(trunk.parameters()), retain_graph=True)
        print("first task", sum(g.square().sum() for g in shared).sqrt().item())
    (first + second).backward()
    optimizer.step()
