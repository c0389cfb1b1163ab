"""Healthy: checkpoint(partial(layer.forward, mask=mask), x) as HF does it, the module call is outside the region."""

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": None}


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.fc, self.drop = nn.LayerNorm(d), nn.Linear(d, d), nn.Dropout(0.1)

    def body(self, x, scale):
        return x + self.drop(torch.relu(self.fc(self.norm(x)))) * scale

    def forward(self, x, scale):
        return checkpoint(partial(self.body, scale=scale), x, use_reentrant=False)


class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.inp, self.layers, self.out = nn.Linear(4, d), nn.ModuleList(Layer(d) for _ in range(3)), nn.Linear(d, 1)

    def forward(self, x):
        h = self.inp(x)
        for layer in self.layers:
            h = layer(h, 0.5)
        return self.out(h)


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    loss = net(torch.randn(6, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
