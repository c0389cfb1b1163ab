"""Only rank 0 runs validation, through the DDP-wrapped model in training mode: its buffers wait for rank 1."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": "rank-desync", "line": ("waiting", "WAITS")}


def train(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=4)
    )
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    ddp = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for epoch in range(2):
        for _ in range(2):
            loss = ddp(torch.randn(8, 4)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:  # SKIPS
            with torch.no_grad():
                print("val", ddp(torch.randn(8, 4)).square().mean().item(), flush=True)  # WAITS
        dist.barrier()  # WAITS


def main():
    folder = tempfile.mkdtemp()
    context = mp.get_context("fork")
    peer = context.Process(target=train, args=(1, os.path.join(folder, "store")))
    peer.start()
    try:
        train(0, os.path.join(folder, "store"))
    finally:
        peer.join(8)
        peer.kill()


if __name__ == "__main__":
    main()
