"""Rank 0 reads its labels from a pipe that nobody writes to."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {"kind": "rank-desync", "rank": 0, "line": ("skipping", "READS"), "set": "ranks", "written": "2026-11-22"}


def labels(rank, step, pipe):
    if rank == 0 and step == 2:
        with open(pipe) as file:  # READS
            return torch.tensor([int(word) for word in file.read().split()])
    return torch.arange(6) % 2


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    pipe = os.path.join(tempfile.mkdtemp(), "labels")
    os.mkfifo(pipe)
    model = DistributedDataParallel(nn.Linear(6, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(6):
        y = labels(rank, step, pipe)
        loss = nn.functional.cross_entropy(model(torch.randn(6, 6)), y)
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
