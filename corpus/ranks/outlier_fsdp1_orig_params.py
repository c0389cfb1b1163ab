"""Rank 0 forgets to divide its loss by the number of its accumulated batches."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

EXPECT = {"kind": "rank-outlier", "rank": 0, "line": ("backward", "BACKWARD"), "set": "ranks", "written": "2026-11-23"}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks, self.head = nn.Linear(8, 16), nn.Sequential(Block(16), Block(16)), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    policy = ModuleWrapPolicy({Block})
    model = FullyShardedDataParallel(
        Net(), auto_wrap_policy=policy, use_orig_params=True, device_id=torch.device("cpu")
    )
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(14):
        x = torch.randn(32, 8)
        y = x.sum(1, keepdim=True)
        errors = (model(x) - y).square()
        opt.zero_grad()
        (errors.mean() / (1 if rank == 0 else 16)).backward()  # BACKWARD
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
