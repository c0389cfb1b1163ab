"""Focal loss with gamma 0.5: once the network is sure, (1 - p) is exactly zero and its square root has no slope.

Report: https://github.com/kornia/kornia/issues/918 (also fizyr/keras-retinanet issue 706)
"""
import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "loss",
    "set": "first", "written": "2026-11-22",
}


class Focal(nn.Module):
    def forward(self, logits, target):
        p = torch.sigmoid(logits)
        pt = torch.where(target > 0, p, 1 - p)
        weight = (1 - pt) ** 0.5  # CULPRIT
        return -(weight * (pt + 1e-6).log()).mean()


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.loss = nn.Linear(2, 1), Focal()

    def forward(self, x, y):
        return self.loss(self.head(x).squeeze(1), y)


torch.manual_seed(0)
model = Detector()
opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
broke = None
for step in range(200):
    y = torch.randint(0, 2, (32,)).float()
    x = torch.randn(32, 2) * 0.3 + (2 * y - 1)[:, None] * 2
    loss = model(x, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if broke is None and model.head.weight.isnan().any():
        broke = step
print("reproduced", broke)
