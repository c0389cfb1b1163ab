"""Healthy: two DDP processes with gloo, join for uneven inputs, no_sync accumulation, rank-0 logging."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": None}


def work(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    ddp = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1))
    )
    opt = torch.optim.SGD(ddp.parameters(), lr=0.05)
    with ddp.join():
        for step in range(4 + rank):
            opt.zero_grad()
            with ddp.no_sync():
                ddp(torch.randn(4, 4)).square().mean().backward()
            loss = ddp(torch.randn(4, 4)).square().mean()
            loss.backward()
            opt.step()
    if rank == 0:
        print("loss", loss.item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    store = os.path.join(tempfile.mkdtemp(), "store")
    peer = mp.get_context("fork").Process(target=work, args=(1, store))
    peer.start()
    work(0, store)
    peer.join()
