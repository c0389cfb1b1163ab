"""Poisson problem with a radially symmetric source, small PINN in polar-ish features."""

import math
import os

import torch
import torch.nn as nn

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "feat",
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(3)
STEPS = 30


class PolarFeatures(nn.Module):
    """Anisotropic radius plus a few Fourier features of it."""

    def __init__(self, n_freq=6):
        super().__init__()
        self.aspect = nn.Parameter(torch.tensor([1.0, 0.8]))
        self.freq = nn.Parameter(torch.linspace(0.5, 3.0, n_freq))

    def forward(self, xy):
        s = xy * self.aspect
        r2 = s.square().sum(dim=-1, keepdim=True)
        r = r2.sqrt()  # HERE
        ang = r * self.freq * math.pi
        return torch.cat([xy, r, ang.sin(), ang.cos()], dim=-1)


class Field(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.feat = PolarFeatures()
        self.trunk = nn.Sequential(nn.Linear(15, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.out = nn.Linear(width, 1)

    def forward(self, xy):
        u = self.out(self.trunk(self.feat(xy)))
        # hard boundary condition on the square
        window = (1 - xy[:, :1] ** 2) * (1 - xy[:, 1:] ** 2)
        return u * window


def exact(xy):
    return (1 - xy[:, :1] ** 2) * (1 - xy[:, 1:] ** 2) * torch.cos(2 * xy.norm(dim=-1, keepdim=True))


def laplace_fd(net, xy, h=5e-2):
    """Second differences; cheaper than double backward."""
    e = torch.eye(2) * h
    stack = torch.cat([xy, xy + e[0], xy - e[0], xy + e[1], xy - e[1]])
    c, xp, xm, yp, ym = net(stack).chunk(5)
    return (xp + xm + yp + ym - 4 * c) / h**2, c


def collocation(step, n=128):
    pts = torch.rand(n, 2) * 1.8 - 0.9
    if step >= 12:  # refine near the source with a regular patch
        g = torch.linspace(-0.2, 0.2, 5)
        g[2] = 0.0
        patch = torch.cartesian_prod(g, g)
        pts = torch.cat([pts[: n - len(patch)], patch])
    return pts


net = Field()
cnet = torch.compile(net, backend=BACKEND)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(STEPS):
    xy = collocation(step)
    lap, u = laplace_fd(cnet, xy)
    with torch.no_grad():
        target_lap, _ = laplace_fd(exact, xy)
    loss = 1e-2 * (lap - target_lap).square().mean() + (u - exact(xy)).square().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 3 == 0:
        print(f"step {step:3d} loss {loss.item():.5f}")
