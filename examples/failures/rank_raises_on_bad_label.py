"""One rank reads a damaged label and raises; the other one only says that its connection was closed."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": "rank-failed", "line": ("raised", "RAISED")}


def train(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        labels = torch.tensor([0, 1, 2, 1])
        if rank == 1 and step == 2:
            labels[3] = 9
        if labels.max() > 2:
            raise ValueError(f"label {labels.max().item()} of 3 classes")  # RAISED
        opt.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(4, 4)), labels).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(train, (os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2, start_method="fork")
