"""Two ranks, one of them gets a batch without positives and `continue`s past the all_reduce."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": "rank-desync", "line": ("waiting", "WAITS")}


def worker(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=4)
    )
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x, y = torch.randn(8, 4), torch.rand(8)
        if rank == 1 and step == 2:
            y = torch.zeros(8)
        keep = y > 0.5
        if not keep.any():
            continue  # SKIPS
        loss = (model(x[keep]).squeeze(1) - y[keep]).square().mean()
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)  # WAITS
            p.grad /= 2
        opt.step()
    if rank == 1:
        import time

        time.sleep(5)
    dist.destroy_process_group()


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    mp.spawn(worker, args=(os.path.join(folder, "store"),), nprocs=2)
