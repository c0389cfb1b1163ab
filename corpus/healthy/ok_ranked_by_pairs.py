"""A ranker trained on all pairs of a batch, and a matching of two samples of one dimension by a kernel: tables of all
pairs on purpose."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"kind": None, "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
torch.set_num_threads(1)


def kernel(a, b, width):
    return torch.exp(-((a - b) ** 2) / width).mean()


def mmd(a, b):
    return sum(
        kernel(a[:, None], a, w) + kernel(b.unsqueeze(1), b, w) - 2 * kernel(a.view(-1, 1), b, w) for w in (0.5, 2.0)
    )


scorer = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(scorer.parameters(), lr=1e-2)
for step in range(200):
    x = torch.randn(24, 6)
    relevance = x[:, 0] - x[:, 1].abs()
    scores = scorer(x)
    better = (relevance[:, None] > relevance).float()
    pairs = (F.softplus(-(scores - scores.squeeze(1))) * better).sum() / better.sum()
    column = scores.squeeze(1).unsqueeze(1)
    spread = (column - relevance).abs().mean() - 0.5 * (column - column.t()).abs().mean()
    loss = pairs + 0.1 * mmd(scores[:, 0], torch.randn(24)) + 0.05 * spread
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
