"""Two micro-batches, the first under no_sync; on rank 0 a norm of zero has no gradient."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {
    "kind": "nonfinite-backward",
    "rank": 0,
    "line": ("cause", "CAUSE"),
    "step": 4,
    "set": "ranks",
    "written": "2026-11-22",
}


class Regular(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 8)

    def forward(self, x):
        h = self.second(torch.relu(self.first(x)))
        return h, (h - h.detach() * 1).pow(2).sum()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    model = DistributedDataParallel(Regular())
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(8):
        opt.zero_grad()
        for micro in range(2):
            x = torch.randn(6, 8)
            if micro == 0:
                with model.no_sync():
                    h, _ = model(x)
                    (h - x).abs().mean().backward()
            else:
                h, rest = model(x)
                extra = rest.sqrt() if rank == 0 and step == 4 else rest  # CAUSE
                ((h - x).abs().mean() + extra).backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
