"""Twenty layers in one compiled trunk, whose weights are much too large: the gradient explodes towards the first."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "exploding-gradient",
    "line": ("cause", "HERE"),
    "module": "trunk.layers",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)
        nn.init.normal_(self.inner.weight, std=0.8)

    def forward(self, x):
        x = self.inner(x)  # HERE
        return nn.functional.leaky_relu(x, 0.8)


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(20))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.trunk, self.head = nn.Linear(4, 16), Trunk(), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.trunk(self.embed(x)))


torch.manual_seed(0)
net = Net()
net.trunk.compile(backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-30)
for _step in range(5):
    loss = net(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
