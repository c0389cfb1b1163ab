"""Rank 0 saves, and its barrier stands inside the if."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {"kind": "rank-desync", "rank": 0, "line": ("", "BARRIER"), "set": "ranks", "written": "2026-11-22"}


def save(model, step, rank):
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(tempfile.mkdtemp(), f"{step}.pt"))
        dist.barrier()  # BARRIER


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=12))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        opt.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(9, 6)), torch.randint(0, 3, (9,))).backward()
        opt.step()
        if step % 4 == 3:
            save(model, step, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
