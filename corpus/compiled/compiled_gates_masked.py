"""Gated forecaster that is compiled: what comes out of it is masked in place by the caller, the compiled backward finds its own saved output changed.

Report: https://github.com/pytorch/torchdynamo/issues/1962 (modified by an inplace operation behind the compiled call; also pytorch/pytorch issue 185497)
"""
import torch
from torch import nn

EXPECT = {
    "class": "compile", "framework": "compile", "kind": "inplace", "mutating_marker": "MUTATES", "step": 12,
    "set": "fifth", "written": "2026-11-22",
}


class Forecaster(nn.Module):
    def __init__(self, channels=5, dim=16):
        super().__init__()
        self.encode = nn.Linear(channels * 6, dim)
        self.value, self.gate = nn.Linear(dim, channels), nn.Linear(dim, channels)

    def forward(self, past):
        h = torch.relu(self.encode(past.flatten(1)))
        return self.value(h), torch.sigmoid(self.gate(h))


torch.manual_seed(0)
model = Forecaster()
forecast = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
for step in range(60):
    series = torch.randn(16, 7, 5).cumsum(1)
    observed = torch.rand(16, 5) > 0.1
    value, gate = forecast(series[:, :6])
    if step >= 12:  # sensors that were off must not open a gate
        gate *= observed  # MUTATES
    error = (gate * value + (1 - gate) * series[:, 5] - series[:, 6]) * observed
    loss = error.abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 5 == 0:
        print(step, loss.item())
