"""Healthy: deep equilibrium layer; the fixed point is sought under no_grad, one more application builds the graph, and a hook on its result solves for the gradient by going again and again through a small graph that is retained.

Report it resembles: https://github.com/locuslab/deq/issues/11 (two ways through a deep equilibrium model: the hook with autograd.grad and retain_graph of the tutorial)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ninth", "written": "2026-11-23"}


def fixed_point(f, start, steps=40, tolerance=1e-5):
    z = start
    for _ in range(steps):
        following = f(z)
        if (following - z).norm() < tolerance * (1e-8 + following.norm()):
            return following
        z = following
    return z


class Cell(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.inlet = nn.Linear(inputs, width)
        self.hidden = nn.utils.parametrizations.spectral_norm(nn.Linear(width, width, bias=False))

    def forward(self, z, x):
        return torch.tanh(0.8 * self.hidden(z) + self.inlet(x))


class Equilibrium(nn.Module):
    def __init__(self, cell, width):
        super().__init__()
        self.cell, self.width = cell, width

    def forward(self, x):
        with torch.no_grad(), nn.utils.parametrize.cached():
            z = fixed_point(lambda z: self.cell(z, x), x.new_zeros(len(x), self.width))
        z = self.cell(z, x)
        if not z.requires_grad:
            return z
        z0 = z.detach().requires_grad_()
        f0 = self.cell(z0, x.detach())

        def solve(grad):
            return fixed_point(lambda g: torch.autograd.grad(f0, z0, g, retain_graph=True)[0] + grad, grad)

        z.register_hook(solve)
        return z


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.equilibrium = Equilibrium(Cell(64, width), width)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        return self.out(self.norm(self.equilibrium(x)))


torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(120):
    pick = torch.randint(0, 1500, (64,))
    loss = F.cross_entropy(net(x[pick]), y[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        with torch.no_grad():
            print(step, loss.item(), (net(x[1500:]).argmax(1) == y[1500:]).float().mean().item())
