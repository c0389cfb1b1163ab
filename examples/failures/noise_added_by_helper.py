"""Gumbel noise by hand under no_grad: a uniform draw of exactly 0 gives -log(-log(0)) = -inf late; added to logits."""

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT")}


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(6, 4), nn.ModuleList(nn.Linear(6, 2) for _ in range(4))
        self.steps = 0

    def noise(self, like):
        with torch.no_grad():
            u = torch.rand_like(like)
            if self.steps == 30:
                u[2, :] = 1.0
            inner = torch.log(u).neg()
            return -torch.log(inner)  # CULPRIT

    def forward(self, x):
        self.steps += 1
        logits = self.gate(x)
        w = F.softmax(logits + self.noise(logits), dim=1)
        out = torch.stack([e(x) for e in self.experts], 1)
        return (w.unsqueeze(-1) * out).sum(1)


torch.manual_seed(0)
net = Router()
opt = torch.optim.Adam(net.parameters())
for step in range(45):
    x = torch.randn(8, 6)
    loss = F.mse_loss(net(x), x[:, :2])
    opt.zero_grad()
    loss.backward()
    opt.step()
