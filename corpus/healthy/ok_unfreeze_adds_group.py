"""Healthy: the backbone is frozen at first, unfrozen at an epoch and then given to the optimizer as a group of its own, batch norm stays frozen, the plateau schedule knows both groups.

Report it resembles: https://github.com/Lightning-AI/pytorch-lightning/issues/8720 (BaseFinetuning.unfreeze_and_add_param_group)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "fourth", "written": "2026-11-22"}

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU())
head = nn.Linear(16, 3)
model = nn.Sequential(backbone, head)
backbone.requires_grad_(False)
opt = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=5e-2, momentum=0.9)
for epoch in range(6):
    model.train()
    backbone[1].eval()
    if epoch == 3:
        trainable = [p for i, layer in enumerate(backbone) if i != 1 for p in layer.parameters()]
        for p in trainable:
            p.requires_grad_(True)
        opt.add_param_group({"params": trainable, "lr": opt.param_groups[0]["lr"] / 10})
    for _ in range(25):
        x = torch.randn(16, 10)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    for group in opt.param_groups:
        group["lr"] *= 0.8
print(loss.item())
