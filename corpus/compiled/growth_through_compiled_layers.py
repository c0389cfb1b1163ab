"""Compiled layers whose weights are much too large: the gradient grows from layer to layer until it explodes."""

import os

import torch
from torch import nn

EXPECT = {"kind": "exploding-gradient", "line": ("cause", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x):
        return nn.functional.leaky_relu(self.inner(x), 0.8)  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(12))
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)  # HERE
        return self.head(x)


torch.manual_seed(0)
net = Net()
for layer in net.layers:
    nn.init.normal_(layer.inner.weight, std=2.0)
    layer.compile(backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-30)
for _step in range(4):
    loss = net(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
