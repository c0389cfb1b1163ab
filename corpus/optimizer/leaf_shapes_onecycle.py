"""A classifier of leaf measurements with OneCycleLR. The schedule is made for all batches, and is stepped after each
epoch: the rate stays at the beginning of its rise.
"""

import torch
from torch import nn

EXPECT = {
    "class": "schedule over batches stepped per epoch",
    "kind": "schedule-too-slow",
    "line": ["cause", "cause"],
    "what": "OneCycleLR is made for epochs * len(batches) steps; call scheduler.step() after each optimizer.step().",
    "symptom": "no error; the loss falls slowly, the rate stays near max_lr / 25",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(3)
EPOCHS = 6
features = torch.randn(960, 14)
species = (features[:, :5] * torch.tensor([1.0, -1.0, 0.5, 2.0, 1.0])).argmax(1)
batches = list(zip(features.split(48), species.split(48), strict=True))

net = nn.Sequential(nn.Linear(14, 40), nn.ReLU(), nn.Linear(40, 5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=EPOCHS * len(batches))  # <-- cause

for epoch in range(EPOCHS):
    total = 0.0
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    scheduler.step()
    print(f"epoch {epoch}: loss {total / len(batches):.3f}, rate {scheduler.get_last_lr()[0]:.4f}")
