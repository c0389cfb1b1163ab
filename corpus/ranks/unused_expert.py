"""A mixture whose last rank routes nothing to its third expert in step 3."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {
    "kind": "none-grad",
    "rank": 1,
    "parameters": ["experts.2.weight", "experts.2.bias"],
    "set": "ranks",
    "written": "2026-11-22",
}


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x, route):
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = route == number
            if mine.any():
                out[mine] = expert(x[mine])
        return out


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=20))
    model = DistributedDataParallel(Mixture())
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(6):
        route = torch.arange(12) % (2 if step == 3 and rank == ranks - 1 else 3)
        x = torch.randn(12, 6)
        loss = (model(x, route) - x).pow(2).mean()  # FAILS
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
