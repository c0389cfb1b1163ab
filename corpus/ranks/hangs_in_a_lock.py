"""Rank 1 takes a lock that it already has; the others wait in a reduction."""

import datetime
import os
import tempfile
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": "rank-desync", "rank": 1, "line": ("skipping", "LOCK"), "set": "ranks", "written": "2026-11-22"}


class Log:
    def __init__(self):
        self.lock, self.lines = threading.Lock(), []

    def add(self, line):
        with self.lock:  # LOCK
            self.lines.append(line)
            if len(self.lines) > 3:
                self.flush()

    def flush(self):
        with self.lock:  # LOCK
            self.lines.clear()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    model, log = nn.Linear(6, 2), Log()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(8):
        loss = model(torch.randn(8, 6)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        opt.step()
        if rank == 1:
            log.add(f"{step} {loss.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
