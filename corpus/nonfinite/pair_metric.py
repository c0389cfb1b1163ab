"""Metric learning on pairs with a contrastive loss, in the order of the downloaded shards. All is well for more than
sixty steps, then all weights are NaN at once, though each loss printed before was small and finite. The later shards hold
duplicates: a pair of equal pictures has distance exactly 0, and the derivative of the square root there is infinite."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "NaN gradient from sqrt at zero",
    "kind": "nonfinite-backward",
    "line": ["cause", "cause"],
    "what": "The Euclidean distance takes sqrt of exactly 0 for a duplicate pair (first at step 64), its backward gives inf * 0 = NaN, and the update makes the weights NaN; an epsilon under the root is missing.",
    "symptom": "loss finite until step 64, then NaN for ever; no error",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(5)
torch.set_num_threads(1)
rng = np.random.default_rng(5)


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(64, dim)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=2.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        distance = (a - b).pow(2).sum(dim=1).sqrt()  # <-- cause
        pull = same * distance.pow(2)
        push = (1 - same) * F.relu(self.margin - distance).pow(2)
        return (pull + push).mean()


def build_pairs():
    """Shards of 256 pairs; from the ninth shard on the crawl repeats pictures."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    by_class = [np.flatnonzero(digits.target == c) for c in range(10)]
    left, right, same = [], [], []
    for shard in range(14):
        for k in range(256):
            c = rng.integers(10)
            i, j = rng.choice(by_class[c], 2, replace=False)
            if k % 2:
                j = rng.choice(by_class[(c + rng.integers(1, 10)) % 10])
            elif shard >= 8 and k % 32 == 0:
                j = i
            left.append(i), right.append(j), same.append(1.0 - k % 2)
    return images, torch.tensor(np.array(left)), torch.tensor(np.array(right)), torch.tensor(same)


images, left, right, same = build_pairs()
encoder = Encoder()
criterion = ContrastiveLoss()
optimizer = torch.optim.Adam(encoder.parameters(), lr=2e-3)

for step, i in enumerate(range(0, len(left), 32)):
    sl = slice(i, i + 32)
    loss = criterion(encoder(images[left[sl]]), encoder(images[right[sl]]), same[sl])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 8 == 0:
        bad = sum(int((~torch.isfinite(p)).sum()) for p in encoder.parameters())
        print(f"step {step:3d}  shard {i // 256:2d}  loss {loss.item():.4f}  non-finite weights {bad}")
