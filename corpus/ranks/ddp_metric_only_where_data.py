"""Validation: a rank whose shard has no annotated image skips the metric, which gathers over all ranks.

Report: https://github.com/weecology/DeepForest/issues/1407
"""
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"class": "ddp", "kind": "rank-desync", "waiting_marker": "WAITS", "set": "first", "written": "2026-11-22"}


class Metric:
    def __init__(self):
        self.values = []

    def compute(self):
        total = torch.tensor([sum(self.values), float(len(self.values))])
        dist.all_reduce(total)  # WAITS
        return (total[0] / total[1]).item()


def validate(net, images, annotated):
    metric = Metric()
    with torch.no_grad():
        for x, ok in zip(images, annotated):
            if ok:
                metric.values.append(net.module(x).abs().mean().item())
    if metric.values:
        print("metric", metric.compute())


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=8))
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Linear(6, 2))
    opt = torch.optim.SGD(net.parameters(), 1e-2)
    for epoch in range(3):
        for step in range(8):
            loss = net(torch.randn(8, 6)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        validate(net, torch.randn(4, 1, 6), [rank == 0 or epoch < 2] * 4)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
