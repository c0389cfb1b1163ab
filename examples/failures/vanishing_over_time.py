"""Adding problem with a plain RNN cell over 100 steps: only the last steps get a gradient."""

import torch
from torch import nn

EXPECT = {"kind": "vanishing-gradient", "line": ("cause", "CULPRIT")}


class Adder(nn.Module):
    def __init__(self, h=16):
        super().__init__()
        self.cell, self.out, self.h = nn.RNNCell(2, h), nn.Linear(h, 1), h
        nn.init.orthogonal_(self.cell.weight_hh, gain=0.4)

    def forward(self, x):
        h = torch.zeros(x.shape[1], self.h)
        for frame in x:
            h = self.cell(frame, h)  # CULPRIT
        return self.out(h)


torch.manual_seed(0)
net = Adder()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    x = torch.rand(60, 8, 2)
    x.requires_grad_()
    loss = (net(x) - x[0, :, :1].detach()).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(x.grad[0].norm().item(), x.grad[-1].norm().item())
