"""Readers of a memory whose temperature is far too high: all weights are nearly the same, whatever the query is."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "vanishing-gradient",
    "line": ("cause", "HERE"),
    "module": "readers",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(16, 16)
        self.register_buffer("keys", torch.randn(24, 16))
        self.register_buffer("values", torch.randn(24, 16))
        self.temperature = 16.0

    def forward(self, x):
        scores = self.query(x) @ self.keys.t() / self.temperature
        weights = scores.softmax(-1)  # HERE
        return weights @ self.values


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.readers, self.head = nn.ModuleList(Reader() for _ in range(10)), nn.Linear(16, 2)

    def forward(self, x):
        for reader in self.readers:
            x = reader(x)
        return self.head(x)


torch.manual_seed(5)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
for _step in range(5):
    loss = nn.functional.cross_entropy(run(torch.randn(32, 16)), torch.randint(2, (32,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
