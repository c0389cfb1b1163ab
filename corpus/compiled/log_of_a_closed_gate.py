"""A gate that closes altogether: the logarithm of zero in the loss."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "module": "gate",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        opened = torch.sigmoid(x * self.weight)
        entropy = -(opened * torch.log(opened))  # HERE
        return x * opened, entropy.sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.gate = nn.Linear(4, 4), Gate()

    def forward(self, x):
        out, cost = self.gate(self.inner(x))
        return out.square().mean() + 0.01 * cost


torch.manual_seed(3)
net = Net()
step_loss = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(9):
    x = torch.randn(8, 4)
    if step == 5:
        x[3] = -1e4 * torch.sign(net.inner.weight[0].detach())
    loss = step_loss(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
