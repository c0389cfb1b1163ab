"""Weights are swapped for their average to log a second loss, through ``.data``: at first before the forward of the step, later between forward and backward."""
import torch
from torch import nn

EXPECT = {
    "class": "late-silent", "kind": "silent-mutation", "mutating_marker": "MUTATES", "step": 220,
    "set": "late_again", "written": "2026-11-22",
}

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3))
average = [p.detach().clone() for p in net.parameters()]
opt = torch.optim.Adam(net.parameters(), 2e-3)


def take(values):
    before = [p.data.clone() for p in net.parameters()]
    for p, v in zip(net.parameters(), values):
        p.data.copy_(v)  # MUTATES
    return before


def look(x, y):
    own = take(average)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(net(x), y).item()
    return loss, own


for step in range(400):
    x = torch.randn(12, 6)
    y = x[:, :3].argmax(1)
    if step < 220:
        shown, own = look(x, y)
        take(own)
    loss = nn.functional.cross_entropy(net(x), y)
    if step >= 220:
        shown, own = look(x, y)
    opt.zero_grad()
    loss.backward()
    if step >= 220:
        take(own)
    opt.step()
    with torch.no_grad():
        for a, p in zip(average, net.parameters()):
            a.lerp_(p, 0.05)
    if step % 80 == 0:
        print(step, round(loss.item(), 4), round(shown, 4))
