"""Sequence model with gates whose dropout works in place and is scheduled: it starts at zero, where it does nothing at all, and when it is raised it writes into the gate that sigmoid has kept.

Report: https://github.com/meetps/pytorch-semseg/issues/121 (dropout in place makes the in-place error; also pytorch/pytorch issue 727)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "step": 75,
    "set": "seventh", "written": "2026-11-22",
}


class GatedBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.value, self.gate = nn.LayerNorm(dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.drop, self.out = nn.Dropout(0.0, inplace=True), nn.Linear(dim, dim)

    def forward(self, x):
        h = self.norm(x)
        gate = torch.sigmoid(self.gate(h))
        gate = self.drop(gate)  # MUTATES
        return x + self.out(self.value(h) * gate)


class Forecaster(nn.Module):
    def __init__(self, dim=16, depth=2):
        super().__init__()
        self.embed, self.head = nn.Linear(12, dim), nn.Linear(dim, 1)
        self.blocks = nn.Sequential(*[GatedBlock(dim) for _ in range(depth)])

    def forward(self, x):
        return self.head(self.blocks(self.embed(x))).squeeze(1)


class DropoutSchedule:
    """Zero during the warm-up, then linear up to the last value."""

    def __init__(self, model, start, length, last):
        self.layers = [m for m in model.modules() if isinstance(m, nn.Dropout)]
        self.start, self.length, self.last = start, length, last

    def step(self, count):
        share = min(max(count - self.start, 0) / self.length, 1.0)
        for layer in self.layers:
            layer.p = self.last * share


torch.manual_seed(0)
model = Forecaster()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = DropoutSchedule(model, start=74, length=50, last=0.2)
for step in range(160):
    schedule.step(step)
    phase = torch.rand(16, 1) * 6.3
    wave = torch.sin(phase + 0.5 * torch.arange(13)) + 0.05 * torch.randn(16, 13)
    loss = nn.functional.mse_loss(model(wave[:, :12]), wave[:, 12])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item(), schedule.layers[0].p)
