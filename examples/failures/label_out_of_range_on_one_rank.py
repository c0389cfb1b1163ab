"""Two ranks; the shard of one has a label that the head does not know. The other loses its connection."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": "rank-failed", "line": ("raised", "CAUSE")}


def train(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        if rank == 1 and step == 3:
            y[2] = 3
        loss = nn.functional.cross_entropy(model(x), y)  # CAUSE
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    store = os.path.join(tempfile.mkdtemp(), "store")
    ranks = [mp.get_context("fork").Process(target=train, args=(rank, store)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
