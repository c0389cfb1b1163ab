"""A plain loop with the linear schedule of transformers: it is told the number of steps, and a warm-up of ten times as
many."""
import torch
from torch import nn
from transformers import get_linear_schedule_with_warmup

EXPECT = {
    "class": "warm-up longer than the training",
    "kind": "schedule-too-slow",
    "line": ["cause", "HERE"],
    "framework": "transformers",
    "set": "ledger",
    "written": "2026-11-29",
}

torch.manual_seed(0)
torch.set_num_threads(1)
data = [torch.randn(32, 8) for _ in range(40)]
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = get_linear_schedule_with_warmup(optimizer, 2000, 5 * len(data))  # HERE

for epoch in range(5):
    for x in data:
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}, rate {schedule.get_last_lr()[0]:.2e}")
