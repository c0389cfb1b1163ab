"""Metric learning with a shared tower; switches to mined positives later on."""
import time
import torch
from torch import nn
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 200,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(1)
data = load_digits()
X = torch.tensor(data.data, dtype=torch.float32) / 16.0
Y = torch.tensor(data.target)
BY_CLASS = [torch.nonzero(Y == c).flatten() for c in range(10)]
P, K = 10, 24
MINE_FROM = 200


class Tower(nn.Module):
    def __init__(self, width=672, dim=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(64, width), nn.LayerNorm(width), nn.GELU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(),
            nn.Linear(width, dim),
        )

    def forward(self, x):
        return self.body(x)


class PairDistance(nn.Module):
    def forward(self, a, b):
        return torch.sqrt(((a - b) ** 2).sum(dim=1))  # CULPRIT


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=2.0):
        super().__init__()
        self.margin = margin
        self.dist = PairDistance()

    def forward(self, z, pos, neg):
        d_pos = self.dist(z, z[pos])
        d_neg = self.dist(z, z[neg])
        return d_pos.pow(2).mean() + (self.margin - d_neg).clamp(min=0).pow(2).mean()


def sample_batch():
    ids = [c[torch.randperm(len(c))[:K]] for c in BY_CLASS]
    ids = torch.cat(ids)
    return X[ids] + 0.02 * torch.randn(len(ids), 64), Y[ids]


def random_pairs(n):
    base = torch.arange(n)
    block, off = base // K, base % K
    pos = block * K + (off + int(torch.randint(1, K, ()))) % K
    neg = (base + K * int(torch.randint(1, P, ()))) % n
    return pos, neg


def mined_pairs(z, y):
    with torch.no_grad():
        d = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
        same = y[:, None] == y[None, :]
        pos = d.masked_fill(~same, float("inf")).argmin(1)
        neg = d.masked_fill(same, float("inf")).argmin(1)
    return pos, neg


tower, criterion = Tower(), ContrastiveLoss()
opt = torch.optim.Adam(tower.parameters(), lr=5e-4)
start = time.time()
for step in range(380):
    x, y = sample_batch()
    z = tower(x)
    pos, neg = mined_pairs(z, y) if step >= MINE_FROM else random_pairs(len(z))
    loss = criterion(z, pos, neg)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if (step + 1) % 50 == 0:
        print(f"[{step}] loss={loss.item():.4f} {(time.time() - start) / (step + 1) * 1e3:.1f} ms/step")
