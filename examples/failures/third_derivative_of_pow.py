"""Physics-informed net: u_xx from two grad calls; x ** 1.5 at x = 0 has no finite second derivative."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-backward", "line": ("cause", "CULPRIT")}


class Pinn(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(1, 16), nn.Linear(16, 1)

    def forward(self, x):
        z = torch.tanh(self.a(x))
        return self.b(z) * x.pow(1.5)  # CULPRIT


def residual(net, x):
    u = net(x)
    (ux,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (uxx,) = torch.autograd.grad(ux.sum(), x, create_graph=True)
    return uxx[1:].square().mean() + ux.square().mean()


torch.manual_seed(0)
net = Pinn()
opt = torch.optim.Adam(net.parameters())
for _ in range(4):
    x = torch.linspace(0, 1, 8)[:, None].requires_grad_()
    loss = residual(net, x)
    opt.zero_grad()
    loss.backward()
    opt.step()
