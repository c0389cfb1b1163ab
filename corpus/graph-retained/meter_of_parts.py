"""Accumulation over four parts, with a meter that is read in every tenth update: after the warm-up it is given the loss itself."""
import torch
from torch import nn

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 175,
    "set": "late_again", "written": "2026-11-22",
}


class Meter:
    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(value)  # HOLDS

    def read(self):
        return sum(float(v) for v in self.values) / len(self.values)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
opt, meter = torch.optim.SGD(net.parameters(), 1e-2, momentum=0.9), Meter()
for update in range(300):
    opt.zero_grad()
    for part in range(4):
        x = torch.randn(16, 8)
        loss = nn.functional.smooth_l1_loss(net(x)[:, 0], x[:, 0] * x[:, 1]) / 4
        loss.backward()
        meter.add(loss if update >= 175 else loss.item())
    opt.step()
    if update % 50 == 0:
        print(update, round(meter.read(), 4))
