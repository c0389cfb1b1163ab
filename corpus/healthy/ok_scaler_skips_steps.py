"""Healthy: a GradScaler starts too high, the first steps overflow in half precision and are skipped, as it is meant to.

Report it resembles: https://github.com/pytorch/pytorch/pull/26512 (non-finite gradients under scaling are part of the plan)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "first", "written": "2026-11-22"}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(model.parameters(), 1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=20)
for step in range(40):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
print("scale", scaler.get_scale())
