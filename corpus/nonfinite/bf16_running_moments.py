"""Pure bfloat16 regression on a drifting signal: the variance is a difference of two running moments, and falls below zero when the mean has grown."""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "norm", "step": 1245,
    "set": "late", "written": "2026-11-22",
}


class RunningNorm(nn.Module):
    def __init__(self, dim, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("square", torch.ones(dim))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), self.momentum)
                self.square.lerp_(x.square().mean(0), self.momentum)
        return (x - self.mean) / (self.square - self.mean.square()).sqrt()  # CULPRIT


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = RunningNorm(6)
        self.body = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 1))

    def forward(self, x):
        return self.body(self.norm(x))[:, 0]


torch.manual_seed(0)
model = Forecaster().to(torch.bfloat16)
opt = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
level = torch.zeros(6)
for step in range(1300):
    level = level + 0.012 * torch.rand(6)  # the machine warms up
    x = level + torch.randn(32, 6)
    y = (x - level).mean(1) + 0.1 * torch.randn(32)
    loss = nn.functional.mse_loss(model(x.bfloat16()).float(), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
