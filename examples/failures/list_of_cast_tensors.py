"""A list of learnable scales, each made with requires_grad and cast afterwards."""

import torch
from torch import nn

EXPECT = {"kind": "unregistered-parameter", "line": ("cut", "CUT")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fcs = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.gains = [torch.ones(4, requires_grad=True).to(torch.float64) for _ in range(3)]  # CUT

    def forward(self, x):
        for fc, g in zip(self.fcs, self.gains):
            x = x + torch.tanh(fc(x)) * g
        return x


torch.manual_seed(0)
net = Net().double()
opt = torch.optim.Adam(net.parameters())
for _ in range(5):
    loss = net(torch.randn(4, 4, dtype=torch.float64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
