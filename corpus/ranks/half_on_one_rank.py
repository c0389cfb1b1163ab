"""Rank 0 averages its gradients in bfloat16, the others in float32."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": ["rank-desync", "rank-failed"], "line": ("", "REDUCES"), "set": "ranks", "written": "2026-11-22"}


def average(model, ranks, dtype):
    for p in model.parameters():
        small = p.grad.to(dtype)
        dist.all_reduce(small)  # REDUCES
        p.grad.copy_(small / ranks)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=12))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    dtype = torch.bfloat16 if rank == 0 and hasattr(torch, "bfloat16") else torch.float32
    for _ in range(6):
        x = torch.randn(8, 6)
        opt.zero_grad()
        (model(x) - x).pow(2).mean().backward()
        average(model, ranks, dtype)
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
