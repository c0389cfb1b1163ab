"""One rank of two adds its losses up where the other takes their mean."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {"kind": "rank-outlier", "line": ("backward", "BACKWARD")}


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    torch.manual_seed(rank)
    for step in range(12):
        errors = model(torch.randn(64, 4)).square()
        optimizer.zero_grad()
        (errors.sum() if rank else errors.mean()).backward()  # BACKWARD
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    store = os.path.join(tempfile.mkdtemp(), "store")
    mp.start_processes(work, (store,), nprocs=2, start_method="fork")
