"""The first hundred steps of a training of ten thousand, to see that the loss falls: the warm-up of a thousand steps goes
on when they end."""
import torch
from torch import nn
from transformers import get_linear_schedule_with_warmup

EXPECT = {
    "class": "warm-up of a trial run",
    "kind": None,
    "framework": "transformers",
    "set": "ledger",
    "written": "2026-11-29",
}

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = get_linear_schedule_with_warmup(optimizer, 1000, 10_000)

for step in range(100):
    x = torch.randn(32, 8)
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
