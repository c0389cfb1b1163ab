"""Two stages: the head alone, then all layers with an optimizer of their own. The exponential decay that was made for
the first optimizer is stepped to the end, and the second optimizer keeps its rate."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "scheduler of a replaced optimizer",
    "kind": "schedule-of-unused-optimizer",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
body = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 24), nn.GELU())
head = nn.Linear(24, 5)
target = torch.randn(12, 5)
optimizer = torch.optim.Adam(head.parameters(), lr=3e-3)
decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)  # <-- cause

for epoch in range(40):
    if epoch == 15:
        optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(8):
        x = torch.randn(32, 12)
        loss = F.cross_entropy(head(body(x)), (x @ target).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    decay.step()
    if epoch % 10 == 9:
        print(f"epoch {epoch + 1}  loss {loss.item():.3f}  rate {decay.get_last_lr()[0]:.5f}")
