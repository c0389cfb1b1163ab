"""Two ranks with unequal shards: one has a batch more, its backward waits for gradients that the other never sends.

Report: https://github.com/lifeiteng/vall-e/pull/95 (also Lightning-AI/pytorch-lightning issue 20404)
"""
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader

EXPECT = {"class": "ddp", "kind": "rank-desync", "waiting_marker": "WAITS", "set": "second", "written": "2026-11-22"}


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=8))
    torch.manual_seed(rank)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)))
    opt = torch.optim.SGD(net.parameters(), 1e-2)
    shard = torch.randn(101 if rank == 0 else 100, 6)
    for x in DataLoader(shard, batch_size=4):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()  # WAITS
        opt.step()
    print("rank", rank, "done")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
