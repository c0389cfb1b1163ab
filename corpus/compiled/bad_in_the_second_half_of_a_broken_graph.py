"""The graph breaks at a print, and what comes after it makes the Inf."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "module": "",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x, step):
        h = self.a(x).tanh()
        if h.sum().item() > 1e9:
            return h.sum()
        rate = self.b(h).abs() * 0 + x[:, :1]
        return torch.reciprocal(rate).mean() + self.b(h).mean()  # HERE


torch.manual_seed(11)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(8):
    x = torch.rand(5, 3) + 0.5
    if step == 4:
        x[2, 0] = 0.0
    loss = run(x, step)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
