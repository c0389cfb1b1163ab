"""Normalising flow that grows by a step of 1x1 convolution and coupling in mid-run: the matrix of the new step is a random rotation, whose determinant is -1 this time, and logdet of that is NaN.

Report: https://github.com/jaywalnut310/glow-tts/issues/17 (logdet in place of slogdet is only right while the determinant is positive)
"""
import math

import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "steps.2.mix", "step": 60,
    "set": "eighth", "written": "2026-11-22",
}


class InvertibleMix(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(channels, channels)))

    def forward(self, x):
        z = x @ self.weight.T
        return z, torch.logdet(self.weight)  # CULPRIT


class Coupling(nn.Module):
    def __init__(self, channels, hidden=24):
        super().__init__()
        self.half = channels // 2
        self.net = nn.Sequential(nn.Linear(self.half, hidden), nn.ReLU(), nn.Linear(hidden, 2 * (channels - self.half)))
        nn.init.normal_(self.net[-1].weight, std=1e-2)

    def forward(self, x):
        keep, change = x[:, : self.half], x[:, self.half :]
        log_scale, shift = self.net(keep).chunk(2, 1)
        log_scale = torch.tanh(log_scale)
        return torch.cat([keep, change * log_scale.exp() + shift], 1), log_scale.sum(1)


class FlowStep(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.mix, self.couple = InvertibleMix(channels), Coupling(channels)

    def forward(self, x):
        x, a = self.mix(x)
        x, b = self.couple(x)
        return x, a + b


class Flow(nn.Module):
    def __init__(self, channels, steps):
        super().__init__()
        self.channels = channels
        self.steps = nn.ModuleList(FlowStep(channels) for _ in range(steps))

    def grow(self):
        self.steps.append(FlowStep(self.channels))
        return self.steps[-1].parameters()

    def log_prob(self, x):
        total = torch.zeros(len(x))
        for step in self.steps:
            x, change = step(x)
            total = total + change
        return total - 0.5 * (x.square() + math.log(2 * math.pi)).sum(1)


def sample(n):
    base = torch.randn(n, 6)
    base[:, 3:] = base[:, :3].square() - 1 + 0.3 * base[:, 3:]
    return base


torch.manual_seed(0)
flow = Flow(6, steps=2)
optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
for step in range(100):
    if step == 60:
        optimizer.add_param_group({"params": list(flow.grow())})
    loss = -flow.log_prob(sample(64)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
