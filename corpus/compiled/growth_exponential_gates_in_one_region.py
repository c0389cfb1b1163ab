"""Gates that are exponentials, and are never below one: each layer multiplies what it is given."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "exploding-gradient",
    "line": ("cause", "HERE"),
    "module": "flow",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale, self.mix = nn.Parameter(torch.full((8,), 1.5)), nn.Linear(8, 8)
        nn.init.orthogonal_(self.mix.weight)

    def forward(self, x):
        return self.mix(x) * self.log_scale.exp()  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.flow, self.head = nn.ModuleList(Gate() for _ in range(12)), nn.Linear(8, 1)

    def forward(self, x):
        for gate in self.flow:
            x = gate(x)
        return self.head(x)


torch.manual_seed(4)
net = Net()
net.compile(backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-30)
for _step in range(5):
    loss = net(torch.randn(8, 8)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
