"""Healthy: BYOL. The teacher is an average of the student, has no gradient, and is copied before training."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"kind": None}

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
teacher = copy.deepcopy(student).requires_grad_(False)
predictor = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.AdamW([*student.parameters(), *predictor.parameters()], 1e-3)
for i in range(10):
    x = torch.randn(32, 16)
    one, two = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
    loss = torch.zeros(())
    for a, b in ((one, two), (two, one)):
        with torch.no_grad():
            target = F.normalize(teacher(b), dim=1)
        loss = loss + (2 - 2 * (F.normalize(predictor(student(a)), dim=1) * target).sum(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mine, its in zip(teacher.parameters(), student.parameters(), strict=True):
            mine.lerp_(its, 0.01)
print(loss.item())
