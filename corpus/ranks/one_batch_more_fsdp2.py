"""fully_shard: rank 0 has one batch more, and gathers weights alone."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard

EXPECT = {"kind": "rank-desync", "rank": 1, "line": ("waiting", "WAITS"), "set": "ranks", "written": "2026-11-22"}


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=12))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 6))
    for layer in model[::2]:
        fully_shard(layer)
    fully_shard(model)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = torch.randn(8 * 5 + (3 if rank == 0 else 0), 6)
    for x in rows.split(8):
        loss = (model(x) - x).abs().mean()  # WAITS
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
