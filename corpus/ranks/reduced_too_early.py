"""Accumulation by hand: gradients are averaged before the last micro-batch."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "kind": "rank-drift",
    "cause": "not reduced",
    "step": 0,
    "line": ("", "LATE"),
    "set": "ranks",
    "written": "2026-11-22",
}


def average(model, ranks):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p) / ranks)
        at += p.numel()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(8):
        opt.zero_grad()
        x = torch.randn(8, 6)
        (model(x) - x).pow(2).mean().backward()
        average(model, ranks)
        x = torch.randn(8, 6)
        (model(x) - x).pow(2).mean().backward()  # LATE
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
