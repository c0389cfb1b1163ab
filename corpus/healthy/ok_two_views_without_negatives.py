"""Healthy: two views of digits without negatives; the projections are detached where they serve as targets, a probe is trained beside on detached features, and the features are centred by a running mean that is kept without a graph.

Report it resembles: https://github.com/lightly-ai/lightly/issues/559 (whether the projections in SimSiam are detached, and where)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ninth", "written": "2026-11-23"}


class Views(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Flatten())
        self.project = nn.Sequential(nn.Linear(96, dim), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, dim), nn.BatchNorm1d(dim, affine=False))
        self.predict = nn.Sequential(nn.Linear(dim, dim // 2), nn.BatchNorm1d(dim // 2), nn.ReLU(), nn.Linear(dim // 2, dim))
        self.probe = nn.Linear(96, 10)
        self.register_buffer("centre", torch.zeros(dim))

    def forward(self, a, b):
        features = self.backbone(a)
        za, zb = self.project(features), self.project(self.backbone(b))
        with torch.no_grad():
            self.centre.mul_(0.95).add_(0.05 * (za + zb).mean(0) / 2)
        pa, pb = self.predict(za), self.predict(zb)
        return pa, pb, za.detach() - self.centre, zb.detach() - self.centre, self.probe(features.detach())


def augment(images):
    shift = torch.randint(-1, 2, (2,)).tolist()
    images = torch.roll(images, shift, (2, 3))
    return images * (0.7 + 0.6 * torch.rand(len(images), 1, 1, 1)) + 0.1 * torch.randn_like(images)


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
model = Views()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for step in range(120):
    pick = torch.randint(0, len(images), (64,))
    pa, pb, za, zb, logits = model(augment(images[pick]), augment(images[pick]))
    similarity = (F.cosine_similarity(pa, zb).mean() + F.cosine_similarity(pb, za).mean()) / 2
    loss = -similarity + F.cross_entropy(logits, labels[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, -similarity.item(), (logits.argmax(1) == labels[pick]).float().mean().item(), "spread", F.normalize(za).std(0).mean().item())
