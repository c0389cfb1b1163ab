"""A run is resumed with the states of model and optimizer; the schedule begins again, at the first rate."""

import torch
from torch import nn

EXPECT = {"kind": "schedule-not-resumed", "line": ("cause", "DECAY")}


def build():
    net = nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.Linear(24, 2))
    adam = torch.optim.Adam(net.parameters(), lr=0.02)
    decay = torch.optim.lr_scheduler.ExponentialLR(adam, gamma=0.93)  # DECAY
    return net, adam, decay


def run(net, adam, decay, steps):
    for _ in range(steps):
        points = torch.randn(32, 6)
        loss = nn.functional.cross_entropy(net(points), (points[:, 0] > points[:, 1]).long())
        adam.zero_grad()
        loss.backward()
        adam.step()
        decay.step()


torch.manual_seed(3)
net, adam, decay = build()
run(net, adam, decay, 50)
checkpoint = {"net": net.state_dict(), "adam": adam.state_dict()}
net, adam, decay = build()
net.load_state_dict(checkpoint["net"])
adam.load_state_dict(checkpoint["adam"])
run(net, adam, decay, 50)
