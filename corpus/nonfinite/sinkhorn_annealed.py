"""Soft matching by Sinkhorn iterations whose regulariser is annealed: the kernel of a stray point underflows to zero and its scaling is a division by zero.

Report: https://github.com/rajewsky-lab/novosparc/issues/50 (also PythonOT/POT issue 54)
"""
import torch
from torch import nn

EXPECT = {
    "class": "overflow", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "match",
    "set": "third", "written": "2026-11-22",
}


class Sinkhorn(nn.Module):
    def __init__(self, iterations=8):
        super().__init__()
        self.iterations, self.eps = iterations, 1.0

    def forward(self, cost):
        n, m = cost.shape
        kernel = torch.exp(-cost / self.eps)
        v = torch.ones(m)
        for _ in range(self.iterations):
            u = (1 / n) / (kernel @ v)  # CULPRIT
            v = (1 / m) / (kernel.t() @ u)
        return u[:, None] * kernel * v[None, :]


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.match = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 4)), Sinkhorn()

    def forward(self, a, b):
        cost = (self.encoder(a)[:, None] - self.encoder(b)[None]).square().sum(-1)
        return (self.match(cost) * cost).sum()


torch.manual_seed(0)
model = Matcher()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(200):
    model.match.eps = max(0.97**step, 0.05)
    a = torch.randn(12, 2)
    if step == 130:
        a[7] = torch.tensor([40.0, -25.0])  # reflection
    b = a @ torch.tensor([[0.8, -0.6], [0.6, 0.8]]) + 0.05 * torch.randn(12, 2)
    b = b.clamp(-4.0, 4.0)
    loss = model(a, b) - 0.1 * model.encoder(a).var(0).sum().clamp(max=4.0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if loss.isnan():
        print("reproduced at", step, model.match.eps)
        break
