"""Healthy: self-distillation that throws the gradients of the last layer away for the first epoch, with a teacher and a centre outside of any optimizer.

Report it resembles: https://github.com/lightly-ai/lightly/issues/1586
"""
import copy

import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "second", "written": "2026-11-22"}

torch.manual_seed(0)
student = nn.Sequential()
student.add_module("body", nn.Linear(8, 16))
student.add_module("act", nn.GELU())
student.add_module("last", nn.Linear(16, 6, bias=False))
teacher = copy.deepcopy(student).requires_grad_(False)
center = torch.zeros(6)
opt = torch.optim.AdamW(student.parameters(), 1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 60)
for step in range(60):
    x = torch.randn(16, 8)
    with torch.no_grad():
        t = teacher(x + 0.1 * torch.randn_like(x))
    target = ((t - center) / 0.04).softmax(1)
    loss = -(target * (student(x) / 0.1).log_softmax(1)).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(student.parameters(), 3.0)
    if step < 20:  # freeze_last_layer
        for p in student.last.parameters():
            p.grad = None
    opt.step()
    sched.step()
    with torch.no_grad():
        center = 0.9 * center + 0.1 * t.mean(0)
        for a, b in zip(student.parameters(), teacher.parameters()):
            b.lerp_(a, 0.01)
print("loss", loss.item())
