"""Face recognition with MV-Softmax: after the warm-up hard negatives are reweighted in the matrix of cosines that the sines were computed from.

Report: https://github.com/xiaoboCASIA/SV-X-Softmax/issues/9 (also JDAI-CV/FaceX-Zoo issue 57)
"""
import math

import torch
from torch import nn

EXPECT = {
    "class": "inplace", "kind": "inplace", "mutating_marker": "MUTATES", "module": "head",
    "set": "third", "written": "2026-11-22",
}


class MVSoftmax(nn.Module):
    def __init__(self, dim, classes, margin=0.35, t=0.2, scale=16.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim))
        self.cos_m, self.sin_m, self.t, self.scale = math.cos(margin), math.sin(margin), t, scale

    def forward(self, x, label, mining):
        cos = nn.functional.normalize(x) @ nn.functional.normalize(self.weight).t()
        sin = (1.0 - cos.pow(2) + 1e-6).sqrt()
        target = (cos * self.cos_m - sin * self.sin_m).gather(1, label[:, None])
        if mining:
            hard = cos > target
            cos[hard] = (self.t + 1.0) * cos[hard] + self.t  # MUTATES
        logits = cos.scatter(1, label[:, None], target)
        return nn.functional.cross_entropy(self.scale * logits, label)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Sequential(nn.Linear(12, 32), nn.PReLU(), nn.Linear(32, 16)), MVSoftmax(16, 8)

    def forward(self, x, label, mining):
        return self.head(self.backbone(x), label, mining)


torch.manual_seed(0)
model = Recogniser()
opt = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, weight_decay=5e-4)
for epoch in range(5):
    for _ in range(15):
        label = torch.randint(0, 8, (16,))
        x = torch.randn(16, 12) + label[:, None] / 4
        loss = model(x, label, mining=epoch >= 2)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
