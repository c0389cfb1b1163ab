"""Healthy: gradual unfreezing done right; the backbone is frozen for two epochs, then joins the optimizer as a group of its own.

Report it resembles: https://github.com/speediedan/finetuning-scheduler/issues/30
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "framework": "lightning", "kind": "none", "set": "second", "written": "2026-11-22"}

torch.manual_seed(0)
model = nn.Sequential()
model.add_module("backbone", nn.Sequential(nn.Linear(8, 16), nn.ReLU()))
model.add_module("head", nn.Linear(16, 3))
model.backbone.requires_grad_(False)
opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1e-2, momentum=0.9)
losses = []
for epoch in range(4):
    if epoch == 2:
        model.backbone.requires_grad_(True)
        opt.add_param_group({"params": list(model.backbone.parameters()), "lr": 1e-3})
    for _ in range(15):
        loss = nn.functional.cross_entropy(model(torch.randn(9, 8)), torch.arange(9) % 3)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
print("loss", sum(losses[-15:]) / 15)
