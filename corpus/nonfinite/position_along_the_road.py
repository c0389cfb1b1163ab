"""Driving policy cloned from an expert, its observations standardised by running statistics from sums and sums of squares in float32: they start anew in each region, and in the high valley the altitude hardly varies around a large value.

Report: https://github.com/huggingface/lerobot/pull/4704 (statistics compute the variance as E[x**2] - E[x]**2; cancellation spoils small variations around large means)
"""
import torch
from torch import nn

EXPECT = {
    "class": "born-without-gradient", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN", "step": 60,
    "set": "tenth", "written": "2026-11-23",
}


class RunningNorm(nn.Module):
    def __init__(self, size, eps=1e-8):
        super().__init__()
        self.eps = eps
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("total", torch.zeros(size))
        self.register_buffer("squares", torch.zeros(size))

    def reset(self):
        for buffer in self.buffers():
            buffer.zero_()

    @torch.no_grad()
    def update(self, x):
        self.count += len(x)
        self.total += x.sum(0)
        self.squares += x.square().sum(0)

    def forward(self, x):
        mean = self.total / self.count
        std = torch.sqrt(self.squares / self.count - mean.square() + self.eps)  # BORN
        return (x - mean) / std


class Policy(nn.Module):
    def __init__(self, observations=5, width=32):
        super().__init__()
        self.norm = RunningNorm(observations)
        self.body = nn.Sequential(nn.Linear(observations, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.steer, self.brake = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, x):
        if self.training:
            self.norm.update(x)
        h = self.body(self.norm(x))
        return torch.cat([self.steer(h), self.brake(h)], 1)


class Road:
    """Offset from the middle, heading, speed, curvature and altitude, with what the expert did."""

    def drive(self, n, valley):
        offset, heading, curvature = torch.randn(3, n)
        speed = 12 + 3 * torch.randn(n)
        altitude = 2348.25 + 0.004 * torch.randn(n) if valley else 400 + 60 * torch.randn(n)
        steer = torch.tanh(curvature - 0.5 * offset - heading)
        brake = torch.sigmoid(speed - 13 + curvature.abs())
        return torch.stack([offset, heading, speed, curvature, altitude], 1), torch.stack([steer, brake], 1)


torch.manual_seed(0)
road, policy = Road(), Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
for step in range(100):
    if step == 60:
        policy.norm.reset()
    observation, action = road.drive(64, valley=step >= 60)
    loss = (policy(observation) - action).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or 59 <= step <= 62:
        print(step, loss.item())
