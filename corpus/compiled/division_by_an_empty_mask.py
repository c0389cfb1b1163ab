"""The mean over a mask with nothing in it."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "module": "pool",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class MaskedMean(nn.Module):
    def forward(self, h, mask):
        total = (h * mask[..., None]).sum(1)
        return total / mask.sum(1, keepdim=True)  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pool, self.out = nn.Linear(3, 5), MaskedMean(), nn.Linear(5, 1)

    def forward(self, x, mask):
        return self.out(self.pool(self.embed(x), mask))


torch.manual_seed(8)
net = Net()
net.compile(backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(10):
    x, mask = torch.randn(4, 6, 3), (torch.rand(4, 6) > 0.2).float()
    if step == 4:
        mask[1] = 0.0
    loss = net(x, mask).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
