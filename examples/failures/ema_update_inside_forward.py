"""Prototype classifier: prototypes (a Parameter) are moved with .lerp_ under no_grad after they were used in the loss."""

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "MUTATES")}


class ProtoNet(nn.Module):
    def __init__(self, classes=4, d=8):
        super().__init__()
        self.body, self.prototypes = nn.Linear(10, d), nn.Parameter(torch.randn(classes, d))

    def forward(self, x):
        z = torch.tanh(self.body(x))
        return z, z @ self.prototypes.t()  # SAVES

    @torch.no_grad()
    def update(self, z, y):
        for c in y.unique():
            self.prototypes[c].lerp_(z[y == c].mean(0), 0.05)  # MUTATES


torch.manual_seed(0)
net = ProtoNet()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    x, y = torch.randn(12, 10), torch.randint(0, 4, (12,))
    z, logits = net(x)
    net.update(z, y)
    loss = nn.functional.cross_entropy(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
