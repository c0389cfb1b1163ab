"""Regression with a network that grows: after a start with three layers, twelve are put in between them, drawn with the standard deviation that transformers use, in a plain chain of tanh; what comes back to the first layers gets smaller by each.

Report: https://github.com/LTH14/mar/issues/46 (gradients of all layers of an MLP but the last are almost zero, and what its initialisation has to do with it)
"""
import torch
from torch import nn

EXPECT = {
    "class": "vanishing", "kind": "vanishing-gradient", "source_marker": "CULPRIT", "step": 40,
    "set": "tenth", "written": "2026-11-23",
}


class Chain(nn.Module):
    def __init__(self, inputs, width=32, depth=3):
        super().__init__()
        self.inlet = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        x = torch.tanh(self.inlet(x))
        for layer in self.layers:
            x = torch.tanh(layer(x))  # CULPRIT
        return self.out(x)

    def grow(self, more, std=0.02):
        width = self.out.in_features
        for _ in range(more):
            layer = nn.Linear(width, width)
            nn.init.normal_(layer.weight, std=std)
            self.layers.insert(len(self.layers) - 1, layer)


class Waves:
    def __init__(self, inputs=8, terms=6):
        self.direction, self.phase = torch.randn(inputs, terms), 6.28 * torch.rand(terms)

    def batch(self, n):
        x = torch.randn(n, len(self.direction))
        return x, torch.sin(x @ self.direction / 2 + self.phase).sum(1, keepdim=True)


torch.manual_seed(0)
waves, chain = Waves(), Chain(8)
optimizer = torch.optim.SGD(chain.parameters(), lr=0.02, momentum=0.9)
for step in range(90):
    if step == 40:
        chain.grow(12)
        optimizer = torch.optim.SGD(chain.parameters(), lr=0.02, momentum=0.9)
    x, y = waves.batch(128)
    loss = (chain(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
