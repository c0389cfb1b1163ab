"""A frozen body and clipped gradients; the head alone learns."""

import os

import torch
from torch import nn

EXPECT = {"kind": None, "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 1)

    def forward(self, x):
        with torch.no_grad():
            h = self.body(x).relu()
        return self.head(h)


torch.manual_seed(5)
net = Net()
net.body.requires_grad_(False)
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.head.parameters(), lr=0.01)
for _step in range(10):
    x = torch.randn(8, 6)
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.head.parameters(), 1.0)
    optimizer.step()
