"""Masks with a large negative number, and a row that always keeps one."""

import os

import torch
from torch import nn

EXPECT = {"kind": None, "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 1)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        mask = torch.ones(len(x), len(x), dtype=torch.bool).tril()
        scores = (q @ k.T).masked_fill(~mask, float("-inf"))
        return self.out(x + scores.softmax(-1) @ v)


torch.manual_seed(1)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _step in range(12):
    x = torch.randn(8, 6)
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
