"""A deep network of sigmoids, compiled with its loss as one function: the first layers hardly learn."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "vanishing-gradient",
    "line": ("cause", "HERE"),
    "module": "layers",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x):
        x = self.inner(x)
        return torch.sigmoid(x)  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(15)), nn.Linear(16, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


torch.manual_seed(1)
net = Net()


@torch.compile(backend=BACKEND)
def loss_of(x, y):
    return nn.functional.cross_entropy(net(x), y)


optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _step in range(6):
    loss = loss_of(torch.randn(8, 16), torch.randint(3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
