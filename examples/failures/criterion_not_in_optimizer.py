"""Uncertainty weights live in the criterion; the optimizer has the model's parameters only."""

import torch
from torch import nn

EXPECT = {"kind": "parameter-not-in-optimizer", "line": ("optimizer", "OPT")}


class MultiLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, a, b):
        losses = torch.stack([a, b])
        return (losses * torch.exp(-self.log_vars) + self.log_vars).sum()


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
criterion = MultiLoss()
opt = torch.optim.Adam(net.parameters(), 1e-3)  # OPT
for step in range(20):
    out = net(torch.randn(8, 4))
    loss = criterion(out[:, 0].square().mean(), out[:, 1].abs().mean())
    opt.zero_grad()
    loss.backward()
    opt.step()
