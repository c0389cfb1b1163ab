"""A weight-shared block is run twice, each time under reentrant checkpointing, in DDP: its hooks fire twice.

Report: https://github.com/microsoft/FocalNet/issues/4 (also huggingface/accelerate issue 389)
"""
import os
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"class": "ddp", "kind": "ddp-ready-twice", "failing_marker": "FAILS", "set": "first", "written": "2026-11-22"}
warnings.simplefilter("ignore")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.shared, self.head = nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 8), nn.GELU()), nn.Linear(8, 2)

    def forward(self, x):
        h = self.stem(x)
        for _ in range(2):
            h = checkpoint(self.shared, h, use_reentrant=True)
        return self.head(h)


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    net = nn.parallel.DistributedDataParallel(Net())
    opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(5):
        loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 2, (8,)))
        opt.zero_grad()
        loss.backward()  # FAILS
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
