"""Metric learning with a cross-batch memory that is switched on after some iterations.

Source: https://github.com/bnu-wangxun/Deep_Metric/issues/45 (KevinMusgrave/pytorch-metric-learning#142 says what belongs detached)
"""
import argparse
from collections import deque

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "c", "kind": "second-backward", "bridge_marker": "REUSED", "step": 151,
    "plain": {"outcome": "raises", "exception": "RuntimeError", "match": "backward through the graph a second time"},
    "set": "twelfth", "written": "2026-11-25",
}


class XBM:
    def __init__(self, batches):
        self.feats, self.targets = deque(maxlen=batches), deque(maxlen=batches)

    def __len__(self):
        return len(self.feats)

    def enqueue_dequeue(self, feats, targets):
        self.feats.append(feats)
        self.targets.append(targets)

    def get(self):
        feats = torch.cat(list(self.feats))  # REUSED
        return feats, torch.cat(list(self.targets))


class Encoder(nn.Module):
    def __init__(self, d_in=24, dim=16):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(d_in, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, dim))

    def forward(self, x):
        return F.normalize(self.mlp(x), dim=1)


def contrastive(anchor, ya, other, yo, margin=0.5):
    sim = anchor @ other.t()
    pos = ya[:, None] == yo[None, :]
    pos_loss = (1 - sim)[pos & (sim < 1 - 1e-5)].sum()
    neg_loss = (sim - margin).clamp(min=0)[~pos].sum()
    return (pos_loss + neg_loss) / len(anchor)


def batches(g, centers, n):
    while True:
        y = torch.randint(0, len(centers), (n,), generator=g)
        yield centers[y] + 0.8 * torch.randn(n, centers.shape[1], generator=g), y


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=300)
    ap.add_argument("--start-iter", type=int, default=150)
    ap.add_argument("--xbm-batches", type=int, default=16)
    ap.add_argument("--lr", type=float, default=3e-4)
    args = ap.parse_args()
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    loader = batches(g, torch.randn(20, 24, generator=g), 32)
    model, xbm = Encoder(), XBM(args.xbm_batches)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    for iteration in range(args.iters):
        images, targets = next(loader)
        feats = model(images)
        loss = contrastive(feats, targets, feats, targets)
        if iteration >= args.start_iter:
            if len(xbm):
                xbm_feats, xbm_targets = xbm.get()
                loss = loss + contrastive(feats, targets, xbm_feats, xbm_targets)
            xbm.enqueue_dequeue(feats, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 30 == 0:
            print(f"iter {iteration} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
