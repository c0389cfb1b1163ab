"""Healthy: a mean teacher that is a copy with trainable parameters, never in an optimizer, updated by averages.

Report it resembles: https://github.com/lhoyer/DAFormer/issues/59
"""
import copy

import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "first", "written": "2026-11-22"}

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
teacher = copy.deepcopy(student)
opt = torch.optim.SGD(student.parameters(), 1e-2, momentum=0.9)
for step in range(60):
    x, y, u = torch.randn(8, 6), torch.randint(0, 3, (8,)), torch.randn(8, 6)
    pseudo = teacher(u).softmax(1).detach()
    loss = nn.functional.cross_entropy(student(x), y) + nn.functional.cross_entropy(student(u + 0.1 * torch.randn_like(u)), pseudo)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for a, b in zip(teacher.parameters(), student.parameters()):
            a.mul_(0.99).add_(b, alpha=0.01)
