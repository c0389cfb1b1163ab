"""Healthy: the rate begins at zero for a warm-up and ends at zero on purpose, as the cosine does. A second group has a
rate of zero from the start, to keep its weights as they are, and a plateau schedule goes down to its minimum."""
import math

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
torch.set_num_threads(1)
WARMUP, STEPS = 20, 200


def factor(step):
    if step < WARMUP:
        return step // WARMUP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARMUP) / (STEPS - WARMUP - 20))))


body, head = nn.Linear(8, 24), nn.Linear(24, 3)
optimizer = torch.optim.SGD([{"params": head.parameters()}, {"params": body.parameters(), "lr": 0.0}], lr=0.2)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
shift = nn.Parameter(torch.zeros(3))
other = torch.optim.SGD([shift], lr=0.1)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(other, factor=0.1, patience=1, min_lr=0.0)

for step in range(STEPS):
    x = torch.randn(32, 8)
    loss = F.cross_entropy(head(torch.tanh(body(x))) + shift, x[:, :3].argmax(1))
    optimizer.zero_grad()
    other.zero_grad()
    loss.backward()
    optimizer.step()
    other.step()
    schedule.step()
    plateau.step(1.0)
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}  rates {schedule.get_last_lr()}")
