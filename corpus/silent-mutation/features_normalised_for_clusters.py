"""Contrastive pretraining that clusters its features once in a while: they are brought to unit length by a routine that works in place, on memory that backward still needs.

Report: https://github.com/facebookresearch/faiss/issues/4318 (normalize_L2 edits its argument in place; also issue 2807 there, with tensors)
"""
import numpy as np
import torch
from torch import nn

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES", "step": 150,
    "set": "fifth", "written": "2026-11-22",
}


def normalize_L2(x):
    x /= np.linalg.norm(x, axis=1, keepdims=True) + 1e-12  # MUTATES


class Clusters:
    def __init__(self, k, dim):
        self.centroids = np.random.default_rng(0).standard_normal((k, dim)).astype("float32")

    def update(self, features):
        normalize_L2(features)
        nearest = (features @ self.centroids.T).argmax(1)
        for j in np.unique(nearest):
            self.centroids[j] = 0.9 * self.centroids[j] + 0.1 * features[nearest == j].mean(0)
        return nearest


class Encoder(nn.Module):
    def __init__(self, inputs=12, dim=16):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, dim))
        self.scale = nn.Linear(dim, dim)

    def forward(self, x):
        z = self.trunk(x)
        return z, self.scale(z)


def nt_xent(a, b, t=0.3):
    a, b = nn.functional.normalize(a, dim=1), nn.functional.normalize(b, dim=1)
    return nn.functional.cross_entropy(a @ b.t() / t, torch.arange(len(a)))


torch.manual_seed(0)
encoder, clusters = Encoder(), Clusters(6, 16)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9)
sizes = np.zeros(6, dtype=int)
for step in range(260):
    x = torch.randn(24, 12)
    z, p = encoder(x + 0.1 * torch.randn_like(x))
    _, q = encoder(x + 0.1 * torch.randn_like(x))
    loss = nt_xent(p, q)
    if step >= 150:
        sizes += np.bincount(clusters.update(z.detach().numpy()), minlength=6)  # MUTATES
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item(), sizes)
