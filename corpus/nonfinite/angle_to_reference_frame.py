"""Pose regression with the geodesic angle: in one batch a sample is the reference itself, the argument of acos is exactly one.

Report: https://github.com/banctilrobitaille/torch-vectorized/issues/7 (AcosBackward returned nan values; also pytorch issue 61810)
"""
import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-backward", "source_marker": "CULPRIT",
    "set": "fourth", "written": "2026-11-22",
}


def geodesic(a, b):
    cosine = (a * b).sum(1).clamp(-1.0, 1.0)
    return torch.acos(cosine)  # CULPRIT


class Pose(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 24), nn.SiLU(), nn.Linear(24, 2))

    def forward(self, x):
        angle = self.body(x[:, :7])[:, 0] * x[:, 7]
        return torch.stack([angle.cos(), angle.sin()], 1)


torch.manual_seed(0)
net = Pose()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
reference = torch.tensor([[1.0, 0.0]])
for step in range(40):
    x = torch.randn(12, 8)
    if step == 19:
        x[0, 7] = 0.0
    predicted = net(x)
    loss = (geodesic(predicted, reference.expand(12, 2)) - x[:, 0].abs()).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
