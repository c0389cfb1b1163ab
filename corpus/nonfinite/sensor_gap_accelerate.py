"""Readings of sensors in windows; a window without readings has a mean of 0 / 0. The loop, with accelerate, leaves out
losses that are NaN. Validation says NaN from some epoch on, while the training loss keeps falling."""
import math

import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "NaN in buffers after a skipped batch",
    "kind": "nonfinite-buffer",
    "line": ["cause", "cause"],
    "what": "A window without readings gives 0 / 0 in the mean; its batch is skipped, and BatchNorm1d keeps the NaN.",
    "symptom": "no error; the validation loss is NaN",
    "framework": "accelerate",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(5)
torch.set_num_threads(1)


class Windows(nn.Module):
    def __init__(self, channels=6):
        super().__init__()
        self.project = nn.Linear(channels, 16)
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Linear(16, 1)

    def forward(self, values, present):
        mean = (values * present).sum(1) / present.sum(1)  # <-- cause
        return self.out(torch.relu(self.norm(self.project(mean)))).squeeze(1)


def windows(n, gap):
    values = torch.randn(n, 12, 6).cumsum(1)
    present = (torch.rand(n, 12, 1) > 0.3).float()
    if gap:
        present[n // 2] = 0
    return TensorDataset(values, present, values.mean((1, 2)))


accelerator = Accelerator(cpu=True)
model = Windows()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = DataLoader(windows(640, gap=True), batch_size=32, shuffle=True)
held_out = windows(128, gap=False)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(6):
    model.train()
    total, count = 0.0, 0
    for values, present, target in loader:
        loss = (model(values, present) - target).square().mean()
        if math.isnan(loss.item()):
            continue
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        total, count = total + loss.item(), count + 1
    model.eval()
    with torch.no_grad():
        values, present, target = held_out.tensors
        valid = (model(values, present) - target).square().mean().item()
    print(f"epoch {epoch}  training {total / count:.3f}  validation {valid:.3f}")
