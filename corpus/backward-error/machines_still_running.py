"""Gamma regression of the life of machines: those that have failed count with their density, those that still run with the probability to have lasted so long; the distribution has that probability, but no derivative of it by its shape.

Report: https://github.com/pytorch/pytorch/pull/89955 (the cdf of the gamma distribution; gradients cannot be evaluated with respect to the first argument of the incomplete gamma function)
"""
import torch
from torch import nn
from torch.distributions import Gamma
from torch.nn import functional as F

EXPECT = {
    "class": "cpp-error", "kind": "backward-error", "source_marker": "CULPRIT",
    "set": "ninth", "written": "2026-11-23",
}


class LifeModel(nn.Module):
    def __init__(self, inputs, width=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.shape, self.mean = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, x):
        h = self.body(x)
        shape = F.softplus(self.shape(h)).squeeze(1) + 0.2
        mean = F.softplus(self.mean(h)).squeeze(1) + 0.1
        return Gamma(shape, shape / mean, validate_args=False)


class CensoredLikelihood(nn.Module):
    def forward(self, life, hours, failed):
        observed = life.log_prob(hours)
        lasted = 1 - life.cdf(hours)  # CULPRIT
        return -torch.where(failed, observed, lasted.clamp(min=1e-6).log()).mean()


def machines(n):
    x = torch.randn(n, 4)
    life = Gamma(2.0 + x[:, 0].abs(), 1.0).sample() * (0.3 * x[:, 1]).exp()
    until = 4 * torch.rand(n) + 1
    return x, torch.minimum(life, until), life <= until


torch.manual_seed(0)
model, likelihood = LifeModel(4), CensoredLikelihood()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(130):
    x, hours, failed = machines(64)
    loss = likelihood(model(x), hours, failed)
    print(step, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
