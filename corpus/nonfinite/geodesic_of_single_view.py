"""Pose network with a consistency term: an object with a single photograph is paired with itself, the angle between equal rotations has an infinite slope.

Report: https://github.com/eigenvivek/xvr/pull/129 (also geoopt/geoopt pull 79 and papagina/RotationContinuity issue 11)
"""
import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-backward", "source_marker": "CULPRIT",
    "set": "third", "written": "2026-11-22",
}


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 6))

    def forward(self, x):
        a, b = self.body(x).view(-1, 2, 3).unbind(1)
        a = nn.functional.normalize(a, dim=1)
        b = nn.functional.normalize(b - (a * b).sum(1, keepdim=True) * a, dim=1)
        return torch.stack([a, b, torch.linalg.cross(a, b)], 2)


def geodesic(r1, r2):
    trace = (r1.transpose(1, 2) @ r2).diagonal(dim1=1, dim2=2).sum(1)
    cos = ((trace - 1) / 2).clamp(-1.0, 1.0)
    return torch.acos(cos)  # CULPRIT


g = torch.Generator().manual_seed(5)
objects = [torch.randn(1 if i in (91, 94, 103) else 3, 10, generator=g) for i in range(160)]

torch.manual_seed(0)
net = PoseNet()
opt = torch.optim.Adam(net.parameters(), 1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40)
for step in range(40):
    batch = objects[4 * step : 4 * step + 4]
    first = net(torch.stack([views[0] for views in batch]))
    second = net(torch.stack([views[-1] for views in batch]))
    target = torch.eye(3).expand_as(first)
    loss = (first - target).square().mean() + 0.1 * geodesic(first, second).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if net.body[0].weight.isnan().any():
        print("reproduced at", step, loss.item())
        break
