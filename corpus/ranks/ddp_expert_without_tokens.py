"""Mixture of experts under DDP: in one batch no token of either rank chooses an expert, the next forward finds the reduction unfinished.

Report: https://github.com/lucidrains/soft-moe-pytorch/issues/4 (experts that received no gradient on a rank)
"""
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "class": "ddp", "kind": "none-grad", "parameters": ["experts.2.weight", "experts.2.bias"],
    "set": "second", "written": "2026-11-22",
}


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.out = nn.Linear(4, 2)

    def forward(self, x, domain):
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (domain == i).nonzero()[:, 0]
            if len(rows):
                y = y.index_add(0, rows, expert(x[rows]))
        return self.out(x + y)


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=8))
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(MoE())
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    for step in range(40):
        domain = torch.arange(9) % (2 if step == 28 else 3)
        loss = nn.functional.cross_entropy(net(torch.randn(9, 4), domain), torch.arange(9) % 2)
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
