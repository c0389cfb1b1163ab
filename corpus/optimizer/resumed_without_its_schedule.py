"""A run in two parts: the checkpoint has the model and the optimizer, and not the polynomial decay, which begins
anew: the second part starts with the rate that the first one had begun with."""
import io

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "scheduler not resumed",
    "kind": "schedule-not-resumed",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}
TOTAL = 200


def build():
    model = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer


def train(model, optimizer, first, last):
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: (1 - t / TOTAL) ** 2)  # <-- cause
    for step in range(first, last):
        x = torch.randn(32, 6)
        y = (x[:, :3].sum(1) > x[:, 3:].prod(1)).long()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.4f}  rate {decay.get_last_lr()[0]:.5f}")


torch.manual_seed(0)
torch.set_num_threads(1)
model, optimizer = build()
train(model, optimizer, 0, 150)
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
checkpoint = torch.load(file)
model, optimizer = build()
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
train(model, optimizer, 150, TOTAL)
