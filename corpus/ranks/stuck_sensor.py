"""A classifier of windows in bf16 autocast, its encoder checkpointed; one window of one rank is constant."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "kind": "nonfinite-forward",
    "rank": 1,
    "step": 14,
    "line": ("cause", "HERE"),
    "set": "ranks",
    "written": "2026-11-25",
}


class Standardise(nn.Module):
    """Zero mean and unit variance for each window."""

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True)
        return (x - mean) / std  # HERE


class Encoder(nn.Module):
    def __init__(self, length, dim):
        super().__init__()
        self.scale, self.proj, self.act = Standardise(), nn.Linear(length, dim), nn.GELU()

    def forward(self, x):
        return self.act(self.proj(self.scale(x)))


class Classifier(nn.Module):
    def __init__(self, length=32, dim=32):
        super().__init__()
        self.encoder = Encoder(length, dim)
        self.block = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())
        self.head = nn.Linear(dim, 4)

    def forward(self, x):
        h = checkpoint(self.encoder, x, use_reentrant=False)
        h = h + checkpoint(self.block, h, use_reentrant=False)
        return self.head(h)


def windows(rank, steps=40):
    g = torch.Generator().manual_seed(31 + rank)
    t = torch.linspace(0, 6.283, 32)
    for step in range(steps):
        label = torch.randint(0, 4, (12,), generator=g)
        x = torch.sin((label[:, None] + 1.0) * t) + 0.3 * torch.randn(12, 32, generator=g)
        if rank == 1 and step == 14:
            x[7] = 2.0  # sensor stuck
        yield x, label


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = DDP(Classifier(), static_graph=True)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, (x, label) in enumerate(windows(rank)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
        loss = nn.functional.cross_entropy(logits.float(), label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
