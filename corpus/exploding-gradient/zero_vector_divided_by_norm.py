"""Vector neurons: v / (|v| + 1e-10) of a point whose vector is zero multiplies its gradient by 1e10.

Report: https://github.com/FlyingGiraffe/vnn/pull/4
"""
import torch
from torch import nn

EXPECT = {
    "class": "exploding-rows", "kind": "exploding-gradient", "source_marker": "CULPRIT", "module": "unit",
    "set": "first", "written": "2026-11-22",
}


class Unit(nn.Module):
    def forward(self, v):
        return v / (v.norm(dim=-1, keepdim=True) + 1e-10)  # CULPRIT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.unit, self.out = nn.Linear(3, 6, bias=False), Unit(), nn.Linear(6, 2)

    def forward(self, p):
        return self.out(self.unit(self.lift(p)))


torch.manual_seed(0)
net = Net()
points = nn.Parameter(torch.randn(64, 3))
opt = torch.optim.SGD([*net.parameters(), points], 1e-3)
for step in range(60):
    if step == 45:
        with torch.no_grad():
            points[7] = 0.0  # re-centred on this point
    loss = nn.functional.cross_entropy(net(points), torch.arange(64) % 2)
    opt.zero_grad()
    loss.backward()
    if step == 45:
        print("reproduced", points.grad[7].norm().item())
        points.grad[7] = 0
    opt.step()
