"""Healthy: slow weights meet the fast ones half-way every 30 steps (Lookahead), and spikes of the loss are answered by a step back to the last good weights."""
import copy

import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(7, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.8)
slow = [p.detach().clone() for p in net.parameters()]
good, usual = copy.deepcopy(net.state_dict()), None
for step in range(1, 361):
    x = torch.randn(48, 7)
    loss = (net(x)[:, 0] - x[:, :3].sum(1).sin()).square().mean()
    usual = loss.item() if usual is None else 0.95 * usual + 0.05 * loss.item()
    if loss.item() > 8 * usual:
        net.load_state_dict(good)
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        with torch.no_grad():
            for kept, p in zip(slow, net.parameters()):
                kept += 0.5 * (p - kept)
                p.copy_(kept)
        good = copy.deepcopy(net.state_dict())
        print(step, usual)
