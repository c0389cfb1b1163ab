"""Two schedules as they are meant: one over batches that is stepped after each batch, one over epochs after each epoch,
of which a trial run does only the first ones.
"""

import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(4)
x, y = torch.randn(600, 10), torch.randint(3, (600,))
batches = list(zip(x.split(30), y.split(30), strict=True))


def train(make, by_batch, epochs):
    model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = make(optimizer)
    for _ in range(epochs):
        for inputs, target in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), target)
            loss.backward()
            optimizer.step()
            if by_batch:
                scheduler.step()
        if not by_batch:
            scheduler.step()
    print(f"{loss.item():.3f} {optimizer.param_groups[0]['lr']:.5f}")


rates = torch.optim.lr_scheduler
train(lambda o: rates.OneCycleLR(o, 0.05, total_steps=4 * len(batches)), True, 4)
train(lambda o: rates.CosineAnnealingLR(o, T_max=90), False, 4)
train(lambda o: rates.LinearLR(o, 0.1, total_iters=5), False, 4)
