"""Two ranks with batch norm: after each epoch the first rank tests the network, through the wrapper, which hands its buffers round in every forward; the other one went to the barrier.

Report: https://github.com/jpata/particleflow/pull/233 (training hangs after a validation on one rank only: its forward has to go through model.module)
"""
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "class": "ddp", "kind": "rank-desync", "waiting_marker": "WAITS", "step": 30,
    "set": "ninth", "written": "2026-11-23",
}


class Tagger(nn.Module):
    """Momentum and energy of particles to the kind of each."""

    def __init__(self, width=24):
        super().__init__()
        self.inlet, self.norm1 = nn.Linear(5, width), nn.BatchNorm1d(width)
        self.hidden, self.norm2 = nn.Linear(width, width), nn.BatchNorm1d(width)
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        x = torch.relu(self.norm1(self.inlet(x)))
        x = x + torch.relu(self.norm2(self.hidden(x)))
        return self.out(x)


def particles(n, generator):
    x = torch.randn(n, 5, generator=generator)
    kind = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] + x[:, 3] > 0.5).long()
    return x, kind


@torch.no_grad()
def score(model, data):
    x, kind = data
    model.eval()
    right = 0
    for i in range(0, len(x), 64):
        right += (model(x[i : i + 64]).argmax(1) == kind[i : i + 64]).sum().item()  # WAITS
    return right / len(x)


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=3))
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(rank)
    test = particles(256, torch.Generator().manual_seed(7))
    for epoch in range(4):
        model.train()
        for _ in range(30):
            x, kind = particles(32, generator)
            loss = nn.functional.cross_entropy(model(x), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {rank} epoch {epoch} {loss.item():.4f}\n", end="", flush=True)
        if rank == 0:
            print(f"accuracy {score(model, test):.3f}\n", end="", flush=True)
        dist.barrier()  # WAITS
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2, start_method="fork")
