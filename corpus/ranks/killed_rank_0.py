"""The system kills rank 0 while it makes its batch."""

import datetime
import os
import signal
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {"kind": "rank-failed", "rank": 0, "line": ("", "CAUSE"), "set": "ranks", "written": "2026-11-22"}


def batch(rank, step):
    if rank == 0 and step == 3:
        time.sleep(2)  # CAUSE
        os.kill(os.getpid(), signal.SIGKILL)  # CAUSE
    return torch.randn(8, 6)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=30))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)))
    opt = torch.optim.Adam(model.parameters())
    for step in range(7):
        x = batch(rank, step)
        loss = (model(x) - x).pow(2).mean()
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
