"""Dead units are made anew with each rank's own random numbers."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {
    "kind": "rank-drift",
    "rank": None,
    "parameters": ["wide.weight"],
    "cause": "written",
    "line": ("cause", "CAUSE"),
    "set": "ranks",
    "written": "2026-11-22",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(6, 30)
        self.out = nn.Linear(30, 2)

    def forward(self, x):
        return self.out(torch.relu(self.wide(x)))

    @torch.no_grad()
    def revive(self, units):
        self.wide.weight[units] = torch.randn(len(units), 6) * 0.1  # CAUSE


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(10 + rank)
    model = DistributedDataParallel(Net())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(10):
        loss = nn.functional.cross_entropy(model(torch.randn(12, 6)), torch.randint(0, 2, (12,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == 3:
            model.module.revive([1, 5, 7])
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
