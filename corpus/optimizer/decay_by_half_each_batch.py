"""A spiral of three classes. StepLR with a step of 15 was meant for epochs and is stepped for every batch: after some
two hundred batches the rate is a ten-thousandth of the first, and the model stays as it is."""
import math

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "scheduler stepped per batch",
    "kind": "update-too-small",
    "line": ["cause", "stepped"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
turn = torch.rand(600)
which = torch.arange(600) % 3
angle = 4 * turn + which * 2 * math.pi / 3
points = torch.stack([turn * angle.cos(), turn * angle.sin()], 1) + 0.02 * torch.randn(600, 2)
model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
slower = torch.optim.lr_scheduler.StepLR(optimizer, step_size=15, gamma=0.5)  # <-- cause

for epoch in range(30):
    for rows in torch.randperm(600).split(40):
        loss = F.cross_entropy(model(points[rows]), which[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slower.step()  # <-- stepped
    if epoch % 9 == 0:
        print(f"epoch {epoch}  loss {loss.item():.4f}")
