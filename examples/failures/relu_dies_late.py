"""A scheduler bug makes one huge step at 60: the first layer's relus are dead from there, all finite."""

import torch
from torch import nn

EXPECT = {"kind": "zero-grad", "line": ("cut", "CUT")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.skip, self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        h = torch.relu(self.a(x))  # CUT
        return self.b(h) + self.skip(x)


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(120):
    if step == 60:
        with torch.no_grad():
            net.a.bias.sub_(100.0)
    loss = nn.functional.cross_entropy(net(torch.randn(16, 6)), torch.randint(0, 3, (16,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
