"""Digits by an angular margin, the head compiled: after eighty steps new identities are enrolled with one picture each, whose embedding becomes the row of the head; its cosine is one, and the root in the sine has no slope there.

Report: https://github.com/ronghuaiyang/arcface-pytorch/issues/91 (the root of one minus the squared cosine is clamped at zero, where its derivative is infinite; the loss goes NaN)
"""
import math

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "compile", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 80,
    "set": "ninth", "written": "2026-11-23",
}
KNOWN, NEW = 8, 24


class Embedder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.fc = nn.Linear(64, dim)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(x.flatten(1))


class ArcMargin(nn.Module):
    def __init__(self, dim, identities, scale=16.0, margin=0.2):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(identities, dim))
        nn.init.xavier_uniform_(self.weight)
        self.scale, self.cos_m, self.sin_m = scale, math.cos(margin), math.sin(margin)

    def forward(self, features, label):
        cosine = F.linear(F.normalize(features), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(0, 1))  # CULPRIT
        phi = cosine * self.cos_m - sine * self.sin_m
        phi = torch.where(cosine > 0, phi, cosine)
        one_hot = F.one_hot(label, self.weight.shape[0]).to(cosine.dtype)
        return self.scale * (one_hot * phi + (1 - one_hot) * cosine)


@torch.no_grad()
def enrol(net, head, images):
    head.weight[KNOWN:] = F.normalize(net(images))


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
old = labels < KNOWN
known_images, known_labels = images[old], labels[old]
new_images = images[~old][:NEW]

net, head = Embedder(), ArcMargin(16, KNOWN + NEW)
score = torch.compile(head, backend="aot_eager")
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.02, momentum=0.9)
for step in range(110):
    pick = torch.randint(0, len(known_images), (40,))
    batch, label = known_images[pick], known_labels[pick]
    if step == 80:
        enrol(net, head, new_images)
    if step >= 80:
        batch, label = torch.cat([batch, new_images]), torch.cat([label, torch.arange(KNOWN, KNOWN + NEW)])
    loss = F.cross_entropy(score(net(batch), label), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or 79 <= step <= 82:
        print(step, loss.item())
