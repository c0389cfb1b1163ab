"""Whitening layer with eigh: the covariance at the start is isotropic, eigenvalues coincide, 1/(a-b) in the backward."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-backward", "line": ("cause", "CULPRIT"), "module": "whiten"}


class Whiten(nn.Module):
    def forward(self, x):
        cov = x.t() @ x / len(x)
        values, vectors = torch.linalg.eigh(cov)  # CULPRIT
        return x @ vectors / (values + 1e-3).sqrt()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.whiten, self.fc = nn.Parameter(torch.ones(4)), Whiten(), nn.Linear(4, 1)

    def forward(self, x):
        return self.fc(self.whiten(x * self.scale).tanh())


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.01)
x = torch.eye(4).repeat(3, 1) * 2
for _ in range(2):
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print({"reproduced": bool(net.scale.isnan().any())})
