"""Two-process DDP (gloo): uneven inputs with join(), no_sync accumulation, unused parameters.

Right because: find_unused_parameters=True covers the branches which a rank skips; the first
micro batch of each window runs under no_sync, also its forward; join() lets the rank with
fewer batches shadow the collectives of the other; plain SGD has no state that could drift
between the ranks.  At the end of each epoch the ranks assert that their weights are equal.
"""
import contextlib
import os
import random
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel as DDP

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class DropNet(nn.Module):
    """Residual MLP that skips a random block now and then (each rank on its own)."""

    def __init__(self, d=64):
        super().__init__()
        self.stem = nn.Linear(64, d)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
                                    for _ in range(3))
        self.head = nn.Linear(d, 10)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            if self.training and random.random() < 0.2:
                continue
            x = x + b(x)
        return self.head(x)


def shard(rank):
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 16 - 0.3, torch.tensor(y)
    test = (x[1500:], y[1500:])
    cut = 805                                    # 23 batches for rank 0, 19.9 for rank 1
    return ((x[:cut], y[:cut]) if rank == 0 else (x[cut:1500], y[cut:1500])), test


def same_everywhere(net):
    flat = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    other = flat.clone()
    dist.broadcast(other, src=0)
    return (flat - other).abs().max().item() < 1e-6


def worker(rank, world, path):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    torch.manual_seed(0)
    net = DDP(DropNet(), find_unused_parameters=True)
    random.seed(100 + rank)
    (x, y), (tx, ty) = shard(rank)
    opt = torch.optim.SGD(net.parameters(), lr=0.15)
    gen = torch.Generator().manual_seed(rank)
    for epoch in range(16):
        net.train()
        batches = torch.randperm(len(x), generator=gen).split(35)
        total = 0.0
        with net.join():
            for i, idx in enumerate(batches):
                last = i % 2 == 1 or i == len(batches) - 1
                with contextlib.nullcontext() if last else net.no_sync():
                    loss = F.cross_entropy(net(x[idx]), y[idx])
                    (loss / (1 if last and i % 2 == 0 else 2)).backward()
                total += loss.item()
                if last:
                    nn.utils.clip_grad_norm_(net.parameters(), 2.0)
                    opt.step()
                    opt.zero_grad()
        assert same_everywhere(net)
        net.eval()
        with torch.no_grad():
            acc = (net.module(tx).argmax(1) == ty).float().mean().item()
        if rank == 0:
            print(f"epoch {epoch} loss {total / len(batches):.4f} test acc {acc:.3f}", flush=True)
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as d:
        mp.spawn(worker, args=(2, os.path.join(d, "rendezvous")), nprocs=2)


if __name__ == "__main__":
    main()
