"""Two groups of the same ranks: rank 0 reduces loss then count, the others count then loss."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": "rank-desync", "line": ("", "ORDER"), "set": "ranks", "written": "2026-11-22"}


def totals(rank, loss, count, metrics, counts):
    if rank == 0:
        dist.all_reduce(loss, group=metrics)  # ORDER
        dist.all_reduce(count, group=counts)
    else:
        dist.all_reduce(count, group=counts)  # ORDER
        dist.all_reduce(loss, group=metrics)
    return loss / count


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    limit = datetime.timedelta(seconds=12)
    metrics = dist.new_group(timeout=limit, group_desc="metrics")
    counts = dist.new_group(timeout=limit, group_desc="counts")
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        loss = model(torch.randn(4, 5)).pow(2).sum()
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        opt.step()
        if step == 3:
            print(totals(rank, loss.detach(), torch.tensor(4.0), metrics, counts).item())
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
