"""A check of the data on rank 1 leaves by os._exit."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {"kind": "rank-failed", "rank": 1, "line": ("", "CAUSE"), "step": 5, "set": "ranks", "written": "2026-11-22"}


def check(x):
    if not torch.isfinite(x).all():
        print("bad data, leaving", flush=True)
        os._exit(3)  # CAUSE


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=30))
    net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 2))
    model = DistributedDataParallel(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(9):
        x = torch.randn(10, 6)
        if rank == 1 and step == 5:
            x[0, 0] = float("nan")
        check(x)
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
