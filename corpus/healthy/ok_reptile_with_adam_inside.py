"""Healthy: Reptile. Each task starts from the common weights, with an Adam of its own for five steps; then the common weights move towards the result."""
import math

import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 1))
common = {name: p.detach().clone() for name, p in model.named_parameters()}
for task in range(40):
    height, phase = torch.rand(()) * 3 + 1, torch.rand(()) * math.pi
    model.load_state_dict(common)
    inner = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.0, 0.999))
    for step in range(5):
        x = torch.rand(20, 1) * 10 - 5
        loss = nn.functional.mse_loss(model(x), height * torch.sin(x + phase))
        inner.zero_grad()
        loss.backward()
        inner.step()
    for name, p in model.named_parameters():
        common[name] += 0.2 * (p.detach() - common[name])
    if task % 10 == 0:
        print(task, loss.item())
