"""Regression on log counts: the targets are made once; one count is zero, and is drawn in a late batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x))).squeeze(1)


def make_data():
    x = torch.randn(400, 5)
    counts = torch.randint(1, 50, (400,))
    counts[333] = 0
    target = counts.float().log()  # CULPRIT
    return TensorDataset(x, target)


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-3)
for x, y in DataLoader(make_data(), batch_size=8):
    pred = net(x)
    loss = (pred - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
