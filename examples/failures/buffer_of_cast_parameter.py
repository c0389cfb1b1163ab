"""register_buffer of a parameter that was cast: in state_dict, not in parameters()."""

import torch
from torch import nn

EXPECT = {"kind": "unregistered-parameter", "line": ("cut", "CUT")}


class Scale(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("gain", nn.Parameter(torch.ones(d)).to(torch.float64))  # CUT

    def forward(self, x):
        return x * self.gain


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(4, 2, dtype=torch.float64), Scale(2)

    def forward(self, x):
        return self.scale(self.fc(x))


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters())
for _ in range(5):
    loss = net(torch.randn(4, 4, dtype=torch.float64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
