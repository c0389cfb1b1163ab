"""Healthy: clips gradients that still have a scaler's factor, by a bound that is multiplied by the same factor. A second
call measures the norm after the step, with an infinite bound, and a third one clips a frozen body that has no
gradients."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
torch.set_num_threads(1)

body = nn.Sequential(nn.Linear(16, 64), nn.ReLU()).requires_grad_(False)
head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for step in range(80):
    x = torch.randn(48, 16)
    optimizer.zero_grad()
    loss = F.cross_entropy(head(body(x)), x[:, :3].argmax(1))
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(body.parameters(), 1.0)
    nn.utils.clip_grad_norm_(head.parameters(), 0.5 * scaler.get_scale())
    scaler.step(optimizer)
    scaler.update()
    norm = nn.utils.clip_grad_norm_(head.parameters(), float("inf"))
    if step % 20 == 0:
        print(f"step {step}  loss {loss.item():.3f}  gradient norm {norm.item():.3f}")
