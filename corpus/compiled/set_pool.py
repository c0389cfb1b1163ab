"""Deep-sets regression on jets: variable multiplicity, moment pooling."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "net.pool",
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(0)


class Phi(nn.Module):
    def __init__(self, d_in, d):
        super().__init__()
        self.l1 = nn.Linear(d_in, d)
        self.l2 = nn.Linear(d, d)

    def forward(self, x):
        return torch.tanh(self.l2(torch.relu(self.l1(x))))


class MomentPool(nn.Module):
    """mean / max / spread over the set axis"""

    def forward(self, h):
        mu = h.mean(dim=1)
        top = h.amax(dim=1)
        var = (h - mu.unsqueeze(1)).pow(2).mean(dim=1)
        spread = torch.sqrt(var)  # HERE
        return torch.cat((mu, top, spread), dim=-1)


class JetNet(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.phi = Phi(4, d)
        self.pool = MomentPool()
        self.rho = nn.Sequential(nn.LayerNorm(3 * d), nn.Linear(3 * d, d), nn.GELU(), nn.Linear(d, 1))

    def forward(self, x):
        return self.rho(self.pool(self.phi(x))).squeeze(-1)


class Task(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = JetNet()
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.net(x) + self.shift


def make_batch(n_part, bs=16):
    p = torch.randn(bs, n_part, 4)
    p[..., 0] = p[..., 0].abs()
    mass = (p[..., 0].sum(1) ** 2 - p[..., 1:].sum(1).pow(2).sum(-1)).abs().add(1e-3).log()
    return p, mass


task = Task()
task.net.compile(backend=BACKEND, dynamic=True)
opt = torch.optim.SGD(task.parameters(), lr=5e-3, momentum=0.9)
huber = nn.HuberLoss()
sizes = [5, 1, 9, 7, 12, 6, 4]
for step in range(14):
    x, y = make_batch(sizes[step % len(sizes)])
    loss = huber(task(x), y)
    opt.zero_grad()
    loss.backward()
    gn = nn.utils.clip_grad_norm_(task.parameters(), 5.0)
    opt.step()
    print(step, x.shape[1], round(loss.item(), 4), float(gn))
