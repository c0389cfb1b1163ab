"""Healthy: a physics-informed network with derivatives kept for a second backward; Adam first, then L-BFGS, whose closure runs backward many times in one step.

Report it resembles: https://github.com/PINA-org/PINA/issues/100
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "third", "written": "2026-11-22"}


def residual(net, x):
    x = x.requires_grad_()
    u = net(x)
    du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    d2u = torch.autograd.grad(du.sum(), x, create_graph=True)[0]
    return d2u + torch.sin(x)


def objective(net, x):
    ends = net(torch.tensor([[0.0], [torch.pi]]))
    return residual(net, x).square().mean() + ends.square().mean()


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
adam = torch.optim.Adam(net.parameters(), 5e-3)
for step in range(60):
    loss = objective(net, torch.rand(32, 1) * torch.pi)
    adam.zero_grad()
    loss.backward()
    adam.step()
print("adam", loss.item())
grid = torch.linspace(0, torch.pi, 48)[:, None]
lbfgs = torch.optim.LBFGS(net.parameters(), max_iter=8, history_size=10, line_search_fn="strong_wolfe")
for step in range(8):
    def closure():
        lbfgs.zero_grad()
        loss = objective(net, grid.clone())
        loss.backward()
        return loss

    loss = lbfgs.step(closure)
print("lbfgs", loss.item())
