"""Two ranks: an empty scan on rank 1 makes NaN there; the all-reduce carries it into the gradients of rank 0.

Report: https://github.com/NVIDIA-NeMo/Automodel/pull/2468 (a bad micro-batch on one rank spoils the job), NaN as in facebookresearch/fastMRI issue 139
"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "class": "ddp", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN",
    "set": "first", "written": "2026-11-22",
}


def normalise(x):
    low = x.amin(1, keepdim=True)
    return (x - low) / (x.amax(1, keepdim=True) - low)  # BORN


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
    opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(25):
        x = torch.rand(8, 6)
        if rank == 1 and step == 15:
            x[4] = 0.5
        loss = nn.functional.cross_entropy(net(normalise(x)), torch.randint(0, 2, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("reproduced", rank, net.module[0].weight.isnan().any().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
