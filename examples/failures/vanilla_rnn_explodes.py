"""Hand-written recurrent cell, recurrent weight too large, 40 steps: the gradient grows at each step of time."""

import torch
from torch import nn

EXPECT = {"kind": "exploding-gradient", "line": ("cause", "CULPRIT")}


class LinearRNN(nn.Module):
    def __init__(self, i, h):
        super().__init__()
        self.h, self.inp, self.rec, self.out = h, nn.Linear(i, h), nn.Linear(h, h, bias=False), nn.Linear(h, 1)
        nn.init.normal_(self.rec.weight, std=1.35 / h**0.5)

    def forward(self, x):
        state = torch.zeros(len(x), self.h)
        for t in range(x.shape[1]):
            state = self.inp(x[:, t]) + self.rec(state)  # CULPRIT
        return self.out(state)


torch.manual_seed(0)
net = LinearRNN(2, 20)
opt = torch.optim.SGD(net.parameters(), lr=1e-12)
for _ in range(3):
    loss = net(torch.randn(4, 40, 2)).abs().mean()
    opt.zero_grad()
    loss.backward()
    print(net.rec.weight.grad.norm().item())
    opt.step()
