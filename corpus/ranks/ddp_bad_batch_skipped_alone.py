"""Two ranks: one skips a batch whose loss is not finite, the other goes into backward and waits for gradients out of step.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/5243 (also NVIDIA-NeMo/Automodel pull 2468 and ai2cm/ace pull 850)
"""
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"class": "ddp", "kind": "rank-desync", "waiting_marker": "WAITS", "set": "third", "written": "2026-11-22"}


def batches(rank, n):
    g = torch.Generator().manual_seed(7 + rank)
    for i in range(n):
        x = torch.randn(8, 6, generator=g)
        if rank == 1 and i == 33:
            x[4, 2] = float("inf")  # a broken record
        yield x, x.nan_to_num(0.0, 0.0, 0.0)[:, :2]


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=8))
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2)))
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    skipped = 0
    for x, y in batches(rank, 60):
        loss = nn.functional.mse_loss(net(x), y) + 1e-4 * x.square().mean()
        if not torch.isfinite(loss):
            skipped += 1
            continue
        opt.zero_grad()
        loss.backward()  # WAITS
        opt.step()
    print("rank", rank, "done, skipped", skipped)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
