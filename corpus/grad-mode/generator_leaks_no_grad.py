"""A generator yields inside `with torch.no_grad()`: the caller's loop body runs with gradient mode off.

Report: https://github.com/huggingface/transformers/issues/3720 (gradient mode set inside a helper); leak as torch documents for generators
"""
import torch
from torch import nn

EXPECT = {
    "class": "grad-mode", "kind": "grad-mode-disabled", "cut_marker": "CUT",
    "set": "first", "written": "2026-11-22",
}


def teacher_batches(teacher, steps):
    for step in range(steps):
        x = torch.randn(16, 6)
        if step < 25:
            yield x, torch.zeros(16, 3)
        else:  # distillation starts
            with torch.no_grad():  # CUT
                yield x, teacher(x)


torch.manual_seed(0)
teacher, student = nn.Linear(6, 3), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.Adam(student.parameters(), 1e-3)
for x, target in teacher_batches(teacher, 60):
    loss = (student(x) - target).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
