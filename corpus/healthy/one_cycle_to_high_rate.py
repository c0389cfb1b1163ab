"""Depth of a well from eight readings, with OneCycleLR: the rate rises to twenty-five times its first value, and the loss
swings on the way and falls."""
import torch
from torch import nn

EXPECT = {"class": "schedule raises the rate", "kind": None, "set": "ledger", "written": "2026-11-29"}

torch.manual_seed(0)
torch.set_num_threads(1)
readings = torch.randn(2000, 8)
depth = torch.sin(readings[:, :1]) + 0.3 * readings[:, 1:2]
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=400)

for step in range(400):
    rows = torch.randint(0, 2000, (64,))
    loss = nn.functional.mse_loss(model(readings[rows]), depth[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 100 == 0:
        print(f"step {step}  loss {loss.item():.4g}")
