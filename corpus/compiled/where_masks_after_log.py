"""The mask comes after the logarithm: the forward is finite, its backward is not."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "head",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 1)

    def forward(self, h, known):
        score = self.out(h).squeeze(-1).square()
        logs = torch.log(score)  # HERE
        return torch.where(known, logs, torch.zeros_like(logs))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), Head()

    def forward(self, x, known):
        return self.head(torch.tanh(self.body(x)), known)


torch.manual_seed(1)
net = Net()
with torch.no_grad():
    net.head.out.bias.fill_(2.0)
compiled = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(10):
    x = torch.randn(6, 3)
    if step == 4:
        with torch.no_grad():
            net.head.out.bias.fill_(-0.0)
            net.head.out.weight.zero_()
    known = torch.tensor([True, True, True, True, True, False])
    if step >= 4:
        known = torch.zeros(6, dtype=torch.bool)
    loss = compiled(x, known).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
