"""Depth regression from patches, DDP with a sharded optimizer (ZeRO-1); shards of files are read in turn."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

EXPECT = {"kind": "rank-outlier", "rank": 1, "step": 6, "set": "ranks", "written": "2026-11-24"}
PATCH, BATCH, PER_FILE, FILES = 6, 16, 3, 8


class DepthNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Flatten(), nn.Linear(PATCH * PATCH, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()
        )
        self.depth = nn.Linear(64, 1)

    def forward(self, x):
        return self.depth(self.features(x))


def render(number):
    """Stands for one file on disk: uint8 patches and the depth of their centres."""
    gen = torch.Generator().manual_seed(300 + number)
    depth = 1 + 4 * torch.rand(BATCH * PER_FILE, 1, 1, generator=gen)
    texture = torch.rand(BATCH * PER_FILE, PATCH, PATCH, generator=gen)
    pixels = (255 * (0.7 * texture / depth + 0.3 / depth)).clamp(0, 255)
    version = 2 if number in (5, 7, 9, 11, 13, 15) else 1  # newer files of the second camera
    return {"version": version, "pixels": pixels.to(torch.uint8), "depth": depth[:, 0]}


def decode(record):
    pixels = record["pixels"].float()
    if record["version"] == 1:
        pixels = pixels / 255  # HERE
    return pixels, record["depth"]


def batches(rank, ranks):
    for number in range(rank, FILES * ranks, ranks):
        pixels, depth = decode(render(number))
        for i in range(PER_FILE):
            part = slice(i * BATCH, (i + 1) * BATCH)
            yield pixels[part], depth[part]


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(2)
    model = DDP(DepthNet())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    best = float("inf")
    for step, (x, y) in enumerate(batches(rank, ranks)):
        loss = (model(x) - y).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        print(f"[{rank}] step {step} loss {loss.item():.4f}", flush=True)
        if step % 10 == 9:  # a checkpoint needs the whole state at rank 0
            optimizer.consolidate_state_dict(to=0)
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0 and mean.item() < best:
                best = mean.item()
                torch.save(
                    {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()},
                    os.path.join(tempfile.gettempdir(), f"depth_{os.getpid()}.pt"),
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
