"""Healthy: gradients of single samples are clipped, added up in buffers and given noise, as for differential privacy.
The optimizer uses other tensors than those that were clipped. A body without an optimizer in the first phase is clipped
separately."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
torch.set_num_threads(1)

body = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
head = nn.Linear(16, 2)
model = nn.Sequential(body, head)
head_optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(15):  # the head alone, on features of the body
    x = torch.randn(8, 8)
    head_optimizer.zero_grad()
    F.cross_entropy(head(body(x)), (x[:, 0] > 0).long()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    head_optimizer.step()

for step in range(40):
    sums = [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(8):
        x = torch.randn(1, 8)
        model.zero_grad()
        F.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for total, p in zip(sums, model.parameters()):
            total += p.grad
    for total, p in zip(sums, model.parameters()):
        p.grad = (total + 0.05 * torch.randn_like(total)) / 8
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}  norm of the sum {torch.stack([t.norm() for t in sums]).norm().item():.3f}")
