"""Siamese network on pairs of digits with a contrastive loss; in the second epoch the loss becomes NaN.

Report: https://github.com/pytorch/pytorch/issues/2421 (the square root in a 2-norm has an infinite gradient at 0, the product with 0 in the backward gives nan)

Effect: at step 71 a pair holds the same picture twice, its distance is exactly 0 and all weights become NaN.
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "nonfinite-backward", "line": ("cause", "CAUSE"),
    "what": "The gradient of sqrt at 0 is infinite, so a pair of identical pictures gives NaN gradients; add a small eps under the square root.",
    "set": "eighteenth", "written": "2026-11-27",
}

torch.manual_seed(0)
data = load_digits()
X = torch.tensor(data.data / 16.0, dtype=torch.float32)[:1120]
Y = torch.tensor(data.target)[:1120]

encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
MARGIN = 2.0


def contrastive_loss(a, b, same):
    dist = torch.sqrt((a - b).pow(2).sum(1))  # CAUSE
    pull = same * dist.pow(2)
    push = (1 - same) * (MARGIN - dist).clamp(min=0).pow(2)
    return (pull + push).mean()


def first_epoch_pairs():
    perm = torch.randperm(len(X))
    return perm, torch.roll(perm, 1)


def mined_pairs():
    left = torch.randperm(len(X))
    right = torch.randperm(len(X))
    for k in range(0, len(X), 2):
        candidates = torch.where(Y == Y[left[k]])[0]
        with torch.no_grad():
            gap = (encoder(X[candidates]) - encoder(X[left[k]])).norm(dim=1)
        right[k] = candidates[gap.topk(6, largest=False).indices[torch.randint(0, 6, (1,))]].item()
    return left, right


step = 0
for epoch in range(3):
    left, right = first_epoch_pairs() if epoch == 0 else mined_pairs()
    for i, j in zip(left.split(16), right.split(16)):
        same = (Y[i] == Y[j]).float()
        loss = contrastive_loss(encoder(X[i]), encoder(X[j]), same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 35 == 34 or 68 <= step <= 72:
            print(f"step {step} loss {loss.item():.4f}")
        step += 1
print("finite weights:", all(p.isfinite().all().item() for p in encoder.parameters()))
