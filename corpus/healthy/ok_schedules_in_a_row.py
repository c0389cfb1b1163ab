"""Healthy: a warm-up and a cosine in a SequentialLR, resumed with its state; a plateau scheduler whose validation loss
rises because the small training set is learnt by heart; and one that maximizes an accuracy."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
torch.set_num_threads(1)


def build():
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    warmup = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=10)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, 50)
    return model, optimizer, lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[10])


def train(model, optimizer, scheduler, steps):
    for _ in range(steps):
        x = torch.randn(32, 8)
        loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    print(f"loss {loss.item():.3f}  rate {scheduler.get_last_lr()[0]:.5f}")


parts = build()
train(*parts, 30)
states = [part.state_dict() for part in parts]
parts = build()
for part, state in zip(parts, states, strict=True):
    part.load_state_dict(state)
train(*parts, 30)

x, y = torch.randn(48, 20), torch.randint(0, 2, (48,))
net = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
on_loss = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=4)
on_accuracy = lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.7, patience=6)
for epoch in range(30):
    loss = F.cross_entropy(net(x[:32]), y[:32])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        out = net(x[32:])
        validation = F.cross_entropy(out, y[32:])
        on_loss.step(validation)
        on_accuracy.step((out.argmax(1) == y[32:]).float().mean())
print(f"training {loss.item():.3f}  validation {validation.item():.3f}")
