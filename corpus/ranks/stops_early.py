"""Each rank decides by its own loss when to stop; the last rank is done first."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {
    "kind": ["rank-desync", "rank-failed"],
    "rank": 1,
    "line": ("", "FINAL"),
    "set": "ranks",
    "written": "2026-11-22",
}


class Patience:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def over(self, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad >= self.patience


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=12))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    stop = Patience(1 if rank == ranks - 1 else 1000)
    torch.manual_seed(1)
    for epoch in range(60):
        x = torch.randn(16, 6)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()  # WAITS
        opt.step()
        if stop.over(loss.item()):
            break
    best = torch.tensor([stop.best])
    dist.all_reduce(best)  # FINAL
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
