"""The last rank has a negative distance, of which a log is taken, at step 5."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {
    "kind": "nonfinite-forward",
    "rank": 1,
    "line": ("cause", "CAUSE"),
    "step": 5,
    "set": "ranks",
    "written": "2026-11-22",
}


class Distances(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 4))

    def forward(self, x, scale):
        h = self.project(x)
        apart = (h[:, None] - h[None]).pow(2).sum(-1) + 1
        return torch.log(apart * scale).mean()  # CAUSE


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    model = DistributedDataParallel(Distances())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(9):
        scale = torch.tensor(-1.0 if step == 5 and rank == ranks - 1 else 1.0)
        loss = model(torch.randn(7, 10), scale)
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
